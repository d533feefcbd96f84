"""The results of the reality-check protocol (MLRC): separated and concatenated, over every ensemble of fold
models.

Model k = 1 .. 4 is validated on its fold of the train classes (pipeline/data/splits.py) and trained on the
others. Every model is trained several times. An ensemble contains one repeat of each model: with 3 repeats
there are 3^4 = 81 ensembles.

    separated      mean over the 4 models of the test metric of each                         (128 dimensions)
    concatenated   test metric of the 4 concatenated unit embeddings, divided by sqrt(4)     (512 dimensions)

Reported are the mean and the population deviation over the 81 ensembles. (Musgrave et al., A Metric Learning
Reality Check, sec. 3; ensembles as in the released code of Generalized Sum Pooling,
solvers/model_trainer.py.)

Cost: 12 evaluations with 128 dimensions and 81 with 512. The inner product of concatenations is the mean of
the inner products of the members, so that 12 similarity matrices would determine all 81 rankings. But this
sum is in float32, and `search` defines the ranking in float64: verifying each cut of each ensemble would be
most of the cost. Therefore each ensemble is one exact search.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from unseen.evaluation.metrics import Rows
from unseen.evaluation.sides import Sides
from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress

Score = Callable[[Sides], dict[str, float]]


class Ensembles(NamedTuple):
    """Metrics of every ensemble, in the order of `choices`."""

    # for each ensemble the repeat (from 0) of each model; that of the last model changes fastest
    choices: tuple[tuple[int, ...], ...]
    separated: dict[str, Float64[np.ndarray, "E"]]
    concatenated: dict[str, Float64[np.ndarray, "E"]]


def concatenate(members: Sequence[Sides]) -> Sides:
    """The concatenated embeddings of the members, scaled to unit length. Raises UserError if the members do
    not have the same rows."""
    for number, member in enumerate(members[1:], start=2):
        for side, first in zip(member, members[0], strict=True):
            if not np.array_equal(side.row_id, first.row_id) or not np.array_equal(side.label, first.label):
                raise UserError(
                    f"Model {number} of the ensemble does not have the rows of model 1.",
                    "Export all models of the protocol again.",
                )
    return Sides(*(_concatenated(sides) for sides in zip(*members, strict=True)))


def ensembles(members: Sequence[Sequence[Sides]], score: Score, label: str | None = None) -> Ensembles:
    """Separated and concatenated metrics of all ensembles. `members[k][r]` is model k, in the order of the
    folds, in its repeat r.

    `score` computes the flat metrics of one set of embeddings. `label` shows progress under that name. Raises
    UserError as `concatenate` does, and if the models do not have the same number of repeats.
    """
    repeats = {len(runs) for runs in members}
    if len(repeats) != 1 or repeats == {0}:
        raise UserError(
            f"The models of the protocol were trained {', '.join(str(len(runs)) for runs in members)} times.",
            "Train every model equally often; each repeat of each fold is one run.",
        )
    choices = tuple(itertools.product(range(repeats.pop()), repeat=len(members)))
    single = _columns([[score(sides) for sides in runs] for runs in members])
    joint = []
    with Progress(label, len(choices), "ensembles") as progress:
        for choice in choices:
            models = [members[model][repeat] for model, repeat in enumerate(choice)]
            joint.append(score(concatenate(models)))
            progress.advance()
    models_column, repeats_of_models = np.arange(len(members))[:, None], np.array(choices).T
    separated = {
        name: values[models_column, repeats_of_models].mean(axis=0) for name, values in single.items()
    }
    concatenated = {name: values[0] for name, values in _columns([joint]).items()}
    return Ensembles(choices, separated, concatenated)


def averages(results: Ensembles) -> dict[str, float]:
    """separated_<metric>, separated_<metric>_std, concatenated_<metric> and concatenated_<metric>_std: mean
    and population deviation."""
    flat = {}
    for kind in ("separated", "concatenated"):
        for name, values in getattr(results, kind).items():
            flat[f"{kind}_{name}"] = float(values.mean())
            flat[f"{kind}_{name}_std"] = float(values.std())
    return flat


def _concatenated(rows: tuple[Rows, ...]) -> Rows:
    joined = np.concatenate([side.embedding for side in rows], axis=1)
    joined /= np.sqrt(len(rows), dtype=np.float32)
    return Rows(rows[0].row_id, rows[0].label, joined)


def _columns(table: list[list[dict[str, float]]]) -> dict[str, Float64[np.ndarray, "k r"]]:
    return {
        name: np.array([[cell[name] for cell in row] for row in table], np.float64) for name in table[0][0]
    }
