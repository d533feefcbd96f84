"""Poolings of a feature map into one vector, one per file, which starts with the formula."""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.poolings.map_pooling import positions as positions_of
    from unseen.poolings.settings import AveragePooling, Pooling
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["AveragePooling", "Pooling", "positions_of"]
