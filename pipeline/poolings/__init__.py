"""Poolings of a feature map into one vector, one per file, which starts with the formula."""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.poolings.positions import positions as positions_of
    from unseen.poolings.settings import AveragePooling, Pooling
else:
    __getattr__ = lazy(
        {
            "AveragePooling": "unseen.poolings.settings:AveragePooling",
            "Pooling": "unseen.poolings.settings:Pooling",
            "positions_of": "unseen.poolings.positions:positions",
        }
    )

__all__ = ["AveragePooling", "Pooling", "positions_of"]
