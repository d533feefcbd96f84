"""The matches of each query as one HTML page that works offline."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipeline.catalog.catalog import Catalog, Match
from pipeline.catalog.embedder import encoded
from pipeline.report import page as report_page
from pipeline.report.pictures import data_uri

SIZE = 220  # pixels of a picture's longer side
_HERE = Path(__file__).parent


def page(catalog: Catalog, queries: Sequence[str | Path], results: Sequence[Sequence[Match]]) -> str:
    """The HTML text. A match whose file no longer exists is shown by its name."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [
        {
            "name": str(query),
            "image": data_uri(np.frombuffer(encoded(query), np.uint8), SIZE),
            "matches": [
                {"path": path, "similarity": f"{similarity:.3f}", "image": _image(catalog.photos / path)}
                for path, similarity in matches
            ],
        }
        for query, matches in zip(queries, results, strict=True)
    ]
    css = (Path(report_page.__file__).parent / "page.css").read_text(encoding="utf-8")
    return environment.get_template("results.html").render(css=Markup(css), catalog=catalog, queries=sections)


def _image(path: Path) -> str | None:
    return data_uri(np.frombuffer(path.read_bytes(), np.uint8), SIZE) if path.is_file() else None
