"""Whether a retrieved image is right for a query."""

from collections.abc import Callable

import pyarrow.parquet as pq

from unseen.data.shards import Shards

Judge = Callable[[int, int], bool | None]  # of a query and a match: whether it is right; None: it is ignored


def judge_of(shards: Shards) -> Judge:
    """A match is right if it has the class of the query.

    With the ground truth of a landmark set, a match is right if it is easy or hard, and ignored if it is
    junk.
    """
    path = shards.directory / "ground_truth.parquet"
    if not path.is_file():
        return lambda query, match: bool(shards.labels[match] == shards.labels[query])
    truth = {row["query"]: row for row in pq.read_table(path).to_pylist()}
    junk = {query: frozenset(row["junk"]) for query, row in truth.items()}
    right = {query: frozenset(row["easy"]) | frozenset(row["hard"]) for query, row in truth.items()}
    return lambda query, match: None if match in junk[query] else match in right[query]
