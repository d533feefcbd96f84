"""Losses and regularisers, one per file, which starts with the formula."""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.losses.pairs import PairLoss, Pairs, References
else:
    __getattr__ = lazy(
        {
            "PairLoss": "unseen.losses.pairs:PairLoss",
            "Pairs": "unseen.losses.pairs:Pairs",
            "References": "unseen.losses.pairs:References",
        }
    )

__all__ = ["PairLoss", "Pairs", "References"]
