"""One query under two methods: the queries whose ranking differs most."""

from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from unseen.report.dataset import DataSet
from unseen.report.sections.gallery import measure_of, viewer

QUERIES = 3  # queries that each of the two methods ranks better


def content(dataset: DataSet) -> dict[str, Any] | None:
    """The two methods with the highest headline metric, by their first seed. None for a single method."""
    ranked = dataset.summary.ranked()
    if len(ranked) < 2:
        return None
    first, second = (dataset.runs(method)[0] for method in ranked[:2])
    views = [viewer(dataset, run)[1] for run in (first, second)]
    place = {row: position for position, row in enumerate(second.queries["row_id"].to_pylist())}
    rows = first.queries["row_id"].to_pylist()
    groups = [
        {
            "method": dataset.styles[method],
            "queries": [(views[0](i), views[1](place[rows[i]])) for i in positions],
        }
        for method, positions in zip(ranked[:2], choose(first.queries, second.queries), strict=True)
    ]
    groups = [group for group in groups if group["queries"]]
    return (
        {"methods": [dataset.styles[method] for method in ranked[:2]], "groups": groups} if groups else None
    )


def choose(first: pa.Table, second: pa.Table) -> tuple[list[int], list[int]]:
    """Positions in `first` of the QUERIES queries with the largest gain in average precision of `first` over
    `second`, and of those with the largest loss; equal ones by row id. Lone queries are excluded."""
    measure = measure_of(first)
    rows = first["row_id"].to_numpy()
    order = np.argsort(second["row_id"].to_numpy())
    other = second.take(order[np.searchsorted(second["row_id"].to_numpy(), rows, sorter=order)])
    gain = _column(first, measure) - _column(other, measure)

    def largest(values: np.ndarray) -> list[int]:
        positions: Int[np.ndarray, " n"] = np.flatnonzero((first["relevant"].to_numpy() > 0) & (values > 0))
        return positions[np.lexsort((rows[positions], -values[positions]))][:QUERIES].tolist()

    return largest(gain), largest(-gain)


def _column(table: pa.Table, name: str) -> np.ndarray:
    return np.nan_to_num(table[name].to_numpy(zero_copy_only=False))
