"""The two sides of retrieval: the queries and the gallery in which they search."""

from pathlib import Path
from typing import NamedTuple

from unseen.data.embeddings import Embeddings, read
from unseen.evaluation.metrics import Rows


class Sides(NamedTuple):
    """Queries and gallery. A row on both sides is not a candidate for itself."""

    queries: Rows
    gallery: Rows


def read_sides(path: Path) -> Sides:
    """The sides of an embedding file. Raises UserError as `embeddings.read` does."""
    return sides_of(read(path))


def sides_of(embeddings: Embeddings) -> Sides:
    """The rows that are queries and the rows that are in the gallery; views where these are all rows."""
    queries, gallery = (
        Rows(*(column if side.all() else column[side] for column in embeddings[:3]))
        for side in (embeddings.is_query, embeddings.is_gallery)
    )
    return Sides(queries, gallery)
