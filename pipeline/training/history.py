"""The curve of a run: one row per validation, numbers and a seal, for `dvc plots` and the report.

    [phase,] iteration, epoch, lr, loss, <each term>, [gradient_covariance, direction_covariance,] grad_norm,
    recall_at_1, map_at_r, r_precision[, test_recall_at_1, test_map_at_r, test_r_precision], sha256

`iteration` counts finished steps. loss, terms, gradient noise (if it is measured) and grad_norm are means
over the steps since the row before. lr is that of the last step (of a group without a multiplier). The
metrics are those of validation; their cells are empty without one. Those of test classes exist with
training.watch_test; they select nothing. A term counts 0 in the steps without it.
`phase` exists under protocol refit: 1 with held-out classes, 2 on all train classes. `iteration` continues
over both phases, `epoch` starts again.
"""

from pathlib import Path

from unseen.runtime.files import atomic_file
from unseen.runtime.sealed import sealed_csv
from unseen.training.flat_terms import is_flat, remark
from unseen.training.gradient_noise import NAMES
from unseen.training.step import Step
from unseen.training.validation import METRICS

_PHASE = "phase"
_FIRST, _LAST = ("iteration", "epoch", "lr", "loss"), ("grad_norm", *METRICS)
TEST_METRICS = tuple(f"test_{name}" for name in METRICS)
_STEPS = "steps"

Row = dict[str, int | float]
Window = dict[str, float]  # sums over the steps since the last row, and the number of these steps


def add(window: Window, step: Step) -> None:
    """Adds the numbers of a step to the sums."""
    numbers = {_STEPS: 1.0, "loss": step.loss, "grad_norm": step.gradient_norm, **step.terms, **step.noise}
    for name, value in numbers.items():
        window[name] = window.get(name, 0.0) + value


def close(
    window: Window,
    iteration: int,
    epoch: float,
    learning_rate: float,
    metrics: dict[str, float],
    phase: int | None = None,
) -> Row:
    """The row of the steps in `window`, which is emptied. Before the first step, loss and gradient are 0.
    `metrics` is empty without a validation, and contains TEST_METRICS if the test classes were embedded."""
    means = {name: value / window[_STEPS] for name, value in window.items() if name != _STEPS}
    means = means or {"loss": 0.0, "grad_norm": 0.0}
    window.clear()
    place = {} if phase is None else {_PHASE: phase}
    return {**place, "iteration": iteration, "epoch": epoch, "lr": learning_rate, **means, **metrics}


def terms_of(rows: list[Row]) -> list[str]:
    """The names of the terms, sorted."""
    return sorted({name for row in rows for name in row} - {_PHASE, *_FIRST, *NAMES, *_LAST, *TEST_METRICS})


def columns(rows: list[Row]) -> list[str]:
    """All columns in their order, the terms by name."""
    names, terms = {name for row in rows for name in row}, terms_of(rows)
    test = TEST_METRICS if names.intersection(TEST_METRICS) else ()
    phase = (_PHASE,) if _PHASE in names else ()
    return [*phase, *_FIRST, *terms, *(name for name in NAMES if name in names), *_LAST, *test]


def remarks(rows: list[Row], method: str) -> list[str]:
    """One for each of several terms that the training does not lower."""
    terms, complete = terms_of(rows), [dict.fromkeys(terms_of(rows), 0.0) | row for row in rows]
    return [remark(term, method) for term in terms if len(terms) > 1 and is_flat([complete], term)]


def write_history(path: Path, rows: list[Row]) -> None:
    """Writes `rows`, at least one, as CSV with a seal (sealed.py); same rows, same bytes."""
    names = columns(rows)
    text = sealed_csv(names, [[_cell(row, name) for name in names] for row in rows])
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def _cell(row: Row, name: str) -> str:
    return "" if name in (*METRICS, *TEST_METRICS) and name not in row else f"{row.get(name, 0.0):.10g}"
