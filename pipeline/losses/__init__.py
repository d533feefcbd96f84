"""Losses and regularisers, one per file, which starts with the formula."""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.losses.pairs import PairLoss, Pairs, References
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["PairLoss", "Pairs", "References"]
