"""Histograms of cosine similarities on landmark benchmarks: the ground truth defines the pairs (IRT fig. 5).

Setup Medium of the revisited benchmarks (Radenovic et al. 2018):

    positive    a query and an image of it, easy or hard
    negative    a query and an image of the benchmark that is neither an image of it, nor junk, nor a query

All pairs are counted.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from unseen.data.embeddings import Embeddings
from unseen.evaluation.analysis.similarity import Similarities, histogram_of
from unseen.runtime.errors import UserError

_POSITIVE = ("easy", "hard")
_IGNORED = ("junk",)


def benchmark_similarities(test: Embeddings, ground_truth: pa.Table, bins: int) -> dict[str, Similarities]:
    """The histograms of each benchmark, with `bins` equal bins over [-1, 1]. Columns of ground_truth:
    benchmark, query, easy, hard, junk, as row ids. Raises UserError for a query that `test` lacks."""
    table = ground_truth.to_pydict()
    result = {}
    for benchmark in dict.fromkeys(table["benchmark"]):
        positive, negative = [], []
        for query, same, different in _pairs(test, table, benchmark):
            positive.append(test.embedding[same] @ test.embedding[query])
            negative.append(test.embedding[different] @ test.embedding[query])
        result[benchmark] = Similarities(
            np.linspace(-1, 1, bins + 1),
            histogram_of(np.concatenate(positive), bins),
            histogram_of(np.concatenate(negative), bins),
        )
    return result


def _pairs(
    test: Embeddings, table: dict[str, list], benchmark: str
) -> Iterator[tuple[int, Int[np.ndarray, " p"], Int[np.ndarray, " n"]]]:
    """(query, positives, negatives) as places in `test`, for each query of a benchmark."""
    rows = [row for row, name in enumerate(table["benchmark"]) if name == benchmark]
    for row in rows:
        places = np.flatnonzero(test.row_id == table["query"][row])
        if not len(places):
            raise UserError(
                f"The embeddings lack query {table['query'][row]} of the ground truth of {benchmark}.",
                "Ingest and export the data set again.",
            )
        query = int(places[0])
        members = test.is_gallery & (test.label == test.label[query]) & ~test.is_query
        of_query, ignored = (
            np.isin(test.row_id, [image for kind in kinds for image in table[kind][row]])
            for kinds in (_POSITIVE, _IGNORED)
        )
        yield query, np.flatnonzero(of_query), np.flatnonzero(members & ~of_query & ~ignored)
