"""Properties of the CSV files that the report reads: any file is read or refused; a written one is read."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unseen.experiments.sweep.outputs import write_trials
from unseen.experiments.sweep.record import Trial
from unseen.report.report_data import read_history, read_trials
from unseen.runtime.errors import UserError
from unseen.training.history import columns, write_history
from unseen.training.validation import METRICS

PIECES = (
    "iteration",
    "loss",
    "1",
    "2.5",
    "nan",
    "true",
    "[1]",
    ",",
    "\n",
    "\r",
    '"',
    " ",
    "\0",
    "\ufeff",
    "x",
)
TABLES = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)
FILES = st.binary(max_size=40) | (TABLES | st.text(max_size=30)).map(str.encode)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv") / "x.csv"


@pytest.mark.slow
@given(content=FILES)
@settings(max_examples=250)
def test_any_file_is_read_or_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with suppress(UserError):
        assert all(isinstance(value, float) for row in read_history(path, "") for value in row.values())
    with suppress(UserError):
        assert all(isinstance(key, str) for row in read_trials(path) for key in row)


def test_a_value_that_is_too_long_is_refused(path: Path) -> None:
    path.write_bytes(b'iteration\n"' + b"1" * 200_000)
    with pytest.raises(UserError, match=r"x\.csv is not a CSV file: field larger"):
        read_trials(path)


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ("trial,loss\n1,2\n3\n", r"x\.csv:3 has another number of cells"),
        ("trial,loss\n1,2,3\n", r"x\.csv:2 has another number of cells"),
    ],
)
def test_damaged_trials_are_refused_with_their_line(path: Path, content: str, finding: str) -> None:
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=finding):
        read_trials(path)


NUMBERS = st.floats(-1e9, 1e9, width=32) | st.integers(0, 10**9)
ROW = st.fixed_dictionaries(
    dict.fromkeys(("iteration", "epoch", "lr", "loss", "grad_norm", "recall_at_1"), NUMBERS),
    optional={"map_at_r": NUMBERS, "koleo": NUMBERS},
)


@given(rows=st.lists(ROW, min_size=1, max_size=4))
@settings(max_examples=30)
def test_a_written_history_is_read(path: Path, rows: list[dict[str, float]]) -> None:
    write_history(path, rows)
    expected = [
        {
            name: float(f"{row.get(name, 0.0):.10g}")
            for name in columns(rows)
            if name in row or name not in METRICS
        }
        for row in rows
    ]
    assert read_history(path, "") == expected


VALUES = st.fixed_dictionaries(
    {
        "optimizer.learning_rate": st.floats(1e-9, 1),
        "dim": st.integers(1, 4096),
        "training.patience": st.none() | st.integers(1, 9),
        "input.crop_scale": st.lists(st.floats(0, 1), min_size=2, max_size=2),
        "loss.name": st.sampled_from(["triplet", "multi_similarity"]),
    }
)
TEXT = st.text("a\r\n", max_size=6) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(trials=st.lists(st.tuples(VALUES, st.none() | TEXT), min_size=1, max_size=3))
@settings(max_examples=60)
def test_written_trials_are_read(path: Path, trials: list[tuple[dict[str, object], str | None]]) -> None:
    written = [Trial(number, values, error=error) for number, (values, error) in enumerate(trials)]
    write_trials(path, written, "map_at_r")
    rows = read_trials(path)
    assert [row["trial"] for row in rows] == list(range(len(trials)))
    for row, (values, error) in zip(rows, trials, strict=True):
        assert {name: row[name] for name in values} == values
        assert (row["error"] == "") == (not (error or "").strip())
