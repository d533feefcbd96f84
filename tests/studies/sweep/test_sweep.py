"""Whole sweeps under Ray Tune: trials stop, fail and are resumed as they should, with a loop whose metric is known."""

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Params, SweepSettings, TrainSettings
from pipeline.runtime.errors import UserError
from pipeline.studies.sweep import sweep as module
from pipeline.studies.sweep.record import load, save
from pipeline.studies.sweep.sweep import sweep

RATIO = "pooling.transport_ratio"
BROKEN, DEFECT = 0.66, 0.77


def settings(ratios: list[float], **more: Any) -> SweepSettings:
    return SweepSettings(space={RATIO: {"grid": ratios}}, iterations=16, **more)


def known(log: Path) -> Callable[..., dict[str, float]]:
    """A loop whose map_at_r rises linearly to the transport ratio. A closure, so that it travels to the workers by value."""

    def loop(job: Any, rank: int, world: int, device: Any, report: Any = None) -> dict[str, float]:
        training, ratio = job.recipe["training"], job.recipe["pooling"]["transport_ratio"]
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{ratio} {rank}/{world} {job.threads}\n")
        for iteration in range(training["validate_every"], training["iterations"] + 1, training["validate_every"]):
            if ratio == BROKEN:
                raise UserError("The loss is not finite at step 3.", "Lower the learning rate.")
            if ratio == DEFECT:
                raise ValueError("a defect")
            time.sleep(0.01)
            metric = ratio * iteration / training["iterations"]
            report({"iteration": iteration, "epoch": 0.5, "loss": 1.0, "recall_at_1": metric, "r_precision": metric, "map_at_r": metric})
        return {"best": ratio}

    return loop


def trials_of(output: Path) -> list[dict[str, str]]:
    with open(output / "trials.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_stops_bad_trials_records_failed_ones_and_finds_the_best(params: Params, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, log = root / "data/sweep/parts/gsp", root / "log"
    line = sweep(params, "parts", "gsp", settings([0.8, 0.1, BROKEN, DEFECT, 0.05]), TrainSettings(gpu="no"), root, 1, output, known(log))
    assert line == "dvc exp run -S 'methods.gsp.pooling.transport_ratio=0.8'"
    found = trials_of(output)
    assert [(one["iterations"], one["stopped_early"]) for one in found] == [
        ("16", "False"),
        ("4", "True"),
        ("0", "False"),
        ("0", "False"),
        ("4", "True"),
    ]
    assert found[2]["error"] == "The loss is not finite at step 3.\n  Lower the learning rate."
    assert found[3]["error"].endswith("ValueError: a defect")
    assert json.loads((output / "best.json").read_text())["value"] == pytest.approx(0.8)
    printed = capsys.readouterr()
    assert line in printed.out
    assert f"trial 0 ({RATIO} 0.8): iteration 16/16" in printed.err
    assert not (root / "data/state/sweep/parts/gsp").exists()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("ray_cluster")
def test_a_killed_sweep_goes_on_with_the_trials_that_are_missing(params: Params, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, log = root / "data/sweep/parts/gsp", root / "log"
    wanted = settings([0.2, 0.3], scheduler="none")

    def killed(jobs: Any, trials: Any, directory: Path, *rest: Any) -> None:
        row = {"iteration": 16.0, "epoch": 0.5, "loss": 1.0, "recall_at_1": 0.9, "r_precision": 0.9, "map_at_r": 0.9, "seconds": 1.0}
        trials[0].rows, trials[0].finished = [row], True
        save(directory, trials[0])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "search", killed)
        sweep(params, "parts", "gsp", wanted, TrainSettings(gpu="no"), root, 1, output, known(log))
    assert not output.exists()
    sweep(params, "parts", "gsp", wanted, TrainSettings(gpu="no"), root, 1, output, known(log))
    assert log.read_text().split() == ["0.3", "0/1", "1"], "trial 0 did not run again"
    assert [float(one["best_map_at_r"]) for one in trials_of(output)] == [0.9, pytest.approx(0.3)]


def test_another_space_never_resumes(params: Params, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def stop(jobs: Any, trials: Any, directory: Path, *rest: Any) -> None:
        seen.append(directory)
        assert load(directory, [{}]) != []
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "search", stop)
    for wanted in (settings([0.8]), settings([0.8]), settings([0.7]), settings([0.8], grace=2), settings([0.8], concurrent=2)):
        with pytest.raises(KeyboardInterrupt):
            sweep(params, "parts", "gsp", wanted, TrainSettings(gpu="no"), root, 1, root / "out")
    assert len(set(seen)) == 3
    assert seen[0] == seen[1] == seen[4]
