"""Photos of another kind, on which a ladder also measures its rungs."""

from pathlib import Path

import numpy as np
from jaxtyping import Int64

from unseen.frozen.labels import labelled
from unseen.frozen.pictures import Listed
from unseen.runtime.errors import UserError


def with_other(
    pictures: Listed, numbers: Int64[np.ndarray, "_"], other: Path, labels: str
) -> tuple[Listed, Int64[np.ndarray, "N"]]:
    """All pictures with those of `other` behind them, and their labels, which differ from the first ones.

    Raises UserError for a picture that is in both, and if no class of `other` has two pictures.
    """
    more, names = labelled(other, labels)
    both = set(pictures.sha256)
    for path, digest in zip(more.paths, more.sha256, strict=True):
        if digest in both:
            raise UserError(
                f"{other / path} is also one of the first photos.",
                "Name photos of another kind with --other, which no class of the first photos shows.",
            )
    added = np.unique(names, return_inverse=True)[1].astype(np.int64)
    if not max(np.bincount(added)) > 1:
        raise UserError(f"No class of {other} has two pictures.", "Add pictures, or omit --other.")
    paths = [str(other.absolute() / path) for path in more.paths]
    joined = Listed(
        [*pictures.paths, *paths],
        [*pictures.sha256, *more.sha256],
        [*pictures.stamps, *more.stamps],
        {},
    )
    return joined, np.concatenate([numbers, added + numbers.max() + 1])
