"""A sample of the campaign of memory: one stage on 150 images."""

from pathlib import Path

import pytest

from tests.torture.memory import PEAK, SMALL, enlarge, measure, measured, write_images
from tests.torture.miniature import project
from tests.torture.results import load


@pytest.mark.slow
def test_a_stage_stays_below_its_limit(tmp_path: Path) -> None:
    state = tmp_path / "memory.json"
    arguments, peak = PEAK["resolve"]
    with project(several=True) as copy:
        enlarge(copy.path / "params.yaml")
        write_images(copy.path / "data/raw/folder/images.zip", 150)
        command = ("unseen.stages.resolve", *arguments)
        measure(copy, "resolve", command, peak, "150 images", state, only_large=True)
        assert (copy.path / "data/resolved/train/folder/ms.json").exists()
        with pytest.raises(RuntimeError, match=r"stages\.resolve.* fails with 0\.01 GiB"):
            measured(copy, command, 0.01, only_large=True)  # with 0.02 pydantic panics, and may hang
    row = load(state)["resolve"]
    assert row["rows"] == "150 images"
    assert 0.05 < row["peak_gib"] < peak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "is_violation"),
    [
        ("raise", True),
        ("sys.exit(3)", True),
        ("sys.stderr.write('error: the memory does not suffice'); sys.exit(1)", False),
    ],
)
def test_only_one_message_is_an_end_without_violation(answer: str, is_violation: bool) -> None:
    with project() as copy:
        module = copy.path / "large.py"
        module.write_text(
            f"import sys\ntry:\n    bytearray({SMALL[-1]})\nexcept MemoryError:\n    {answer}\n"
        )
        row = measured(copy, ("large",), 2.0)
    assert row["limit_gib"] == 2.0
    assert bool(row["violations"]) == is_violation
    assert row["answers"].keys() == {"0.59 GiB", "1 GiB"}
