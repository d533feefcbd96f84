"""The matches of each query, and the groups of near-duplicates, as HTML pages that work offline."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from unseen.data.heif import readable
from unseen.frozen.encoded import encoded
from unseen.report.html import environment, style
from unseen.report.pictures import data_uri
from unseen.report.recipes import text
from unseen.runtime.names import printable
from unseen_search.catalog.answers import Answer
from unseen_search.catalog.catalog import Catalog
from unseen_search.catalog.duplicates import Group

SIZE = 220  # pixels of a picture's longer side
_HERE = Path(__file__).parent


def page(
    catalog: Catalog,
    queries: Sequence[str | Path],
    answers: Sequence[Answer],
    statement: str | None = None,
) -> str:
    """The HTML text. A match whose file is missing or has changed since the build is shown by its name.
    `statement`: of the threshold."""
    sections = [
        {
            "name": text(printable(str(query))),
            "unknown": answer.unknown,
            "product": answer.products[0].label if answer.products else None,
            "image": data_uri(_octets(encoded(query)), SIZE),
            "matches": [
                {
                    "path": match.path,
                    "label": match.label,
                    "similarity": f"{match.similarity:.3f}",
                    "image": _image(catalog, match.path),
                }
                for match in answer.matches
            ],
        }
        for query, answer in zip(queries, answers, strict=True)
    ]
    return _rendered("results.html", catalog, queries=sections, statement=statement)


def duplicates_page(catalog: Catalog, groups: Sequence[Group]) -> str:
    """The HTML text of groups of near-duplicates."""
    sections = [
        {
            "contradictory": group.contradictory,
            "pictures": [
                {
                    "path": copy.path,
                    "label": copy.label,
                    "difference": None if copy.difference is None else f"{copy.difference:.1f}",
                    "image": _image(catalog, copy.path),
                }
                for copy in group.pictures
            ],
        }
        for group in groups
    ]
    return _rendered("duplicates.html", catalog, groups=sections)


def _rendered(template: str, catalog: Catalog, **values: object) -> str:
    """The page. A folder or model outside the project is shown by its name: a page is shared."""
    names = {
        "directory": text(str(catalog.directory)),
        "photos": text(str(catalog.photos)),
        "model": text(str(catalog.about["model"])),
    }
    return environment(_HERE).get_template(template).render(css=style(), catalog=catalog, **names, **values)


def _image(catalog: Catalog, path: str) -> str | None:
    try:
        return data_uri(_octets(catalog.picture(catalog.rows[path])), SIZE)
    except (OSError, ValueError):
        return None


def _octets(picture: bytes) -> UInt8[np.ndarray, "bytes"]:
    return np.frombuffer(readable(picture), np.uint8)
