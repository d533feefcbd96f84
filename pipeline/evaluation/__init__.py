"""Exact retrieval metrics and their statistics: ties resolved, self removed by id, intervals. No torch."""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.evaluation.metrics import PerQuery
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["PerQuery"]
