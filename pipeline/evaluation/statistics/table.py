"""A metric of the rows of an experiment by place, seed and class, the input of intervals and tests."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from unseen.evaluation.record import Record, Run


class Table(NamedTuple):
    """A metric of R rows at K places with S seeds: y[k, s, c], the means over the n_kc images of class c. A
    class without images at a place has the value 0."""

    values: Float64[np.ndarray, "R K S C"]
    images: Float64[np.ndarray, "K C"] | None  # None: a metric of trainings as a whole, C = 1

    def weights(self) -> Float64[np.ndarray, "K C"]:
        """w_kc = n_kc / sum_c n_kc."""
        if self.images is None:
            return np.ones((self.values.shape[1], 1))
        return self.images / self.images.sum(axis=1, keepdims=True)

    def by_seed(self) -> Float64[np.ndarray, "R S"]:
        """mean_k sum_c w_kc y[k, s, c]."""
        means: Float64[np.ndarray, "R S"] = np.einsum("rksc,kc->rs", self.values, self.weights())
        return means / self.values.shape[1]

    def queries(self) -> int:
        """Images of all places; 0 for a metric of trainings."""
        return 0 if self.images is None else int(self.images.sum())

    def fewest_classes(self) -> int:
        """Classes of the place with the fewest; 0 for a metric of trainings."""
        return 0 if self.images is None else int((self.images > 0).sum(axis=1).min())


def of_records(
    records: Mapping[Run, Record], rows: Sequence[str], metric: str, places: Sequence[str] = ()
) -> Table:
    """The table of rows at places, at all without a name. Raises ValueError for rows that do not have the
    same places, seeds and images of a class."""
    by_row = [
        {
            (run.place, run.seed): record
            for run, record in records.items()
            if run.row == row and (not places or run.place in places)
        }
        for row in rows
    ]
    names = sorted({place for place, _ in by_row[0]})
    seeds = sorted({seed for _, seed in by_row[0]})
    keys = list(product(names, seeds))
    if not keys or any(set(of_row) != set(keys) for of_row in by_row):
        raise ValueError(f"the records of {' and '.join(rows)} do not have the same places and seeds")
    if metric in by_row[0][keys[0]].training:
        values = np.array([[of_row[key].training[metric] for key in keys] for of_row in by_row])
        return Table(values.reshape(len(rows), len(names), len(seeds), 1), None)
    images = {name: by_row[0][name, seeds[0]].images for name in names}
    if any(of_row[key].images != images[key[0]] for of_row in by_row for key in keys):
        raise ValueError(f"the records of {' and '.join(rows)} do not have the same images of each class")
    classes = sorted(set().union(*images.values()))
    values = np.array(
        [
            [[of_row[key].classes[metric].get(name, 0.0) for name in classes] for key in keys]
            for of_row in by_row
        ]
    )
    return Table(
        values.reshape(len(rows), len(names), len(seeds), len(classes)),
        np.array([[images[place].get(name, 0) for name in classes] for place in names], np.float64),
    )


def of_queries(methods: Sequence[Float64[np.ndarray, "S Q"]], labels: Int64[np.ndarray, "Q"]) -> Table:
    """The table of methods that were scored on the same Q queries. Lone queries are NaN in all methods.

    Raises ValueError if the methods do not have the same lone queries.
    """
    scored = _scored(methods[0])
    if not all(np.array_equal(scored, _scored(values)) for values in methods[1:]):
        raise ValueError("the methods were not scored on the same queries")
    _, member = np.unique(labels[scored], return_inverse=True)
    images = np.bincount(member).astype(np.float64)
    values = [[[np.bincount(member, run) / images for run in method[:, scored]]] for method in methods]
    return Table(np.array(values), images[None])


def _scored(values: Float64[np.ndarray, "S Q"]) -> Bool[np.ndarray, "Q"]:
    missing = np.isnan(values)
    if (missing.any(axis=0) != missing.all(axis=0)).any():
        raise ValueError("the runs were not scored on the same queries")
    return ~missing[0]
