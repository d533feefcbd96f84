"""The two sides of retrieval: the queries and the gallery in which they search."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from unseen.data.embeddings import Embeddings, read
from unseen.evaluation.metrics import Rows
from unseen.evaluation.tables import SELECTED
from unseen.runtime.errors import UserError


class Sides(NamedTuple):
    """Queries and gallery. A row on both sides is not a candidate for itself."""

    queries: Rows
    gallery: Rows

    def has_rows_of(self, other: "Sides") -> bool:
        """Whether both have the same row ids and labels, in the same order."""
        return all(
            np.array_equal(first.row_id, second.row_id) and np.array_equal(first.label, second.label)
            for first, second in zip(self, other, strict=True)
        )

    def require_rows_of(self, selected: "Sides", network: str) -> None:
        """Raises UserError if a network has embeddings of other rows than the selected one."""
        if not self.has_rows_of(selected):
            raise UserError(
                f"The embeddings of network {network} have other rows than those of network {SELECTED}.",
                "Export all networks of the run again.",
            )


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
