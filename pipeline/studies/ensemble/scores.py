"""The results of the reality-check protocol (MLRC): separated and concatenated, over every ensemble of fold
models.

Model k = 1 .. 4 is validated on its fold of the train classes (pipeline/data/folds.py) and trained on the
others; every model is trained several times. An ensemble takes one repeat of each model: 3^4 = 81 of them.

    separated     mean over its 4 models of the model's own test metric                                  (128
    dimensions) concatenated  test metric of the 4 unit embeddings side by side, divided by sqrt(4) to be a
    unit vector (512 dimensions)

Reported is the mean and the population deviation over the 81. (Musgrave et al., A Metric Learning Reality
Check, sec. 3; ensembles as in the released code of Generalized Sum Pooling, solvers/model_trainer.py.)

Cost: 12 evaluations at 128 dimensions and 81 at 512. The inner product of concatenations is the mean of the
members', so that 12 matrices of similarities hold all 81 rankings; but that sum is in float32 what the
ranking of `search` defines in float64, and proving every cut of every ensemble anew is most of the work. Each
ensemble is one exact search instead, and they are independent: `only` takes a share of them.
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from pipeline.evaluation.metrics import Rows
from pipeline.evaluation.sides import Sides
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import Progress

Score = Callable[[Sides], dict[str, float]]


class Ensembles(NamedTuple):
    """Metrics of every ensemble, in the order of `choices`."""

    choices: tuple[tuple[int, ...], ...]  # the repeat taken of each model
    members: dict[str, Float64[np.ndarray, "k r"]]  # of model k, repeat r alone
    separated: dict[str, Float64[np.ndarray, "E"]]
    concatenated: dict[str, Float64[np.ndarray, "E"]]


def concatenate(members: Sequence[Sides]) -> Sides:
    """The members' embeddings side by side, of unit length. Raises UserError where they are not of the same
    rows."""
    for number, member in enumerate(members[1:], start=2):
        for ours, first in zip(member, members[0], strict=True):
            if not np.array_equal(ours.row_id, first.row_id) or not np.array_equal(ours.label, first.label):
                raise UserError(
                    f"Model {number} of the ensemble was not shown the same rows as model 1.",
                    "Export all models of the protocol anew.",
                )
    return Sides(*(_side_by_side(sides) for sides in zip(*members, strict=True)))


def ensembles(
    members: Sequence[Sequence[Sides]], score: Score, only: slice = slice(None), label: str | None = None
) -> Ensembles:
    """Separated and concatenated metrics of all ensembles. `members[k][r]` is model k, in the order of the
    folds, in its repeat r.

    `score` gives the flat metrics of one set of embeddings. `only` is the share of the ensembles wanted, in
    the order of `choices` (the last model's repeat changes fastest). `label` shows progress under that name.
    Raises UserError as `concatenate` does and where the models have not all been trained equally often.
    """
    repeats = {len(runs) for runs in members}
    if len(repeats) != 1 or repeats == {0}:
        raise UserError(
            f"The models of the protocol were trained {', '.join(str(len(runs)) for runs in members)} times.",
            "Train every model equally often; each repeat of each fold is one run.",
        )
    choices = tuple(itertools.product(range(repeats.pop()), repeat=len(members)))[only]
    alone = _columns([[score(sides) for sides in runs] for runs in members])
    together = []
    with Progress(label, len(choices), "ensembles") if label else contextlib.nullcontext() as progress:
        for choice in choices:
            together.append(
                score(concatenate([members[model][repeat] for model, repeat in enumerate(choice)]))
            )
            if progress is not None:
                progress.advance()
    picked = np.array(choices).T
    separated = {
        name: values[np.arange(len(members))[:, None], picked].mean(axis=0) for name, values in alone.items()
    }
    return Ensembles(
        choices, alone, separated, {name: values[0] for name, values in _columns([together]).items()}
    )


def averages(results: Ensembles) -> dict[str, float]:
    """separated_<metric>, separated_<metric>_std, concatenated_<metric> and concatenated_<metric>_std: mean
    and population deviation."""
    flat = {}
    for kind in ("separated", "concatenated"):
        for name, values in getattr(results, kind).items():
            flat[f"{kind}_{name}"] = float(values.mean())
            flat[f"{kind}_{name}_std"] = float(values.std())
    return flat


def _side_by_side(rows: tuple[Rows, ...]) -> Rows:
    joined = np.concatenate([side.embedding for side in rows], axis=1)
    joined /= np.sqrt(len(rows), dtype=np.float32)
    return Rows(rows[0].row_id, rows[0].label, joined)


def _columns(table: list[list[dict[str, float]]]) -> dict[str, Float64[np.ndarray, "k r"]]:
    return {
        name: np.array([[cell[name] for cell in row] for row in table], np.float64) for name in table[0][0]
    }
