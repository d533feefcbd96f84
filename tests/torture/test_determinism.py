"""A sample of the campaign of determinism, and its comparison."""

from pathlib import Path

import pytest

from tests.torture.determinism import differences, different, run_stages


@pytest.mark.slow
def test_two_runs_from_resolve_to_train_write_the_same_bytes(tmp_path: Path) -> None:
    first, second = (run_stages(tmp_path, last="train") for _ in range(2))
    assert (first / "data/models/parts/ms/0/weights.safetensors").exists()
    assert different(first / "data", second / "data") == []
    history = second / "data/history/parts/ms/0.csv"
    history.write_text(history.read_text() + "\n")
    (second / "data/logs/parts/ms/0.json").unlink()
    (first / "data/metrics.json").touch()
    assert different(first / "data", second / "data") == ["history/parts/ms/0.csv", "metrics.json"]


def test_states_the_largest_differences_of_a_variant() -> None:
    result = {
        "threads": ["models/a", "models/b", "report/index.html"],
        "largest": {"weight": 4.77e-7, "embedding": 1.84e-7},
    }
    text = differences(result, "threads", "largest")
    assert text.startswith("3 files differ, below models, report. After 4 steps, the largest difference of a")
    assert "weight is 4.8e-07, and of a value of a unit embedding 1.8e-07" in text
