"""What was found, as one HTML page that opens offline: each question with its matches beside it."""

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


def page(catalog: Catalog, questions: Sequence[str | Path], found: Sequence[Sequence[Match]]) -> str:
    """The page. Pictures of the catalog that are no longer where they were are shown by their name alone."""
    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    asked = [
        {
            "name": str(question),
            "image": data_uri(np.frombuffer(encoded(question), np.uint8), SIZE),
            "matches": [{"path": path, "similarity": f"{similarity:.3f}", "image": _image(catalog.photos / path)} for path, similarity in matches],
        }
        for question, matches in zip(questions, found, strict=True)
    ]
    css = (Path(report_page.__file__).parent / "page.css").read_text(encoding="utf-8")
    return environment.get_template("found.html").render(css=Markup(css), catalog=catalog, asked=asked)


def _image(path: Path) -> str | None:
    return data_uri(np.frombuffer(path.read_bytes(), np.uint8), SIZE) if path.is_file() else None
