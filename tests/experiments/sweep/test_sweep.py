"""Complete sweeps under Ray Tune with a loop whose metric is given: trials stop, fail and resume."""

import csv
import errno
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from unseen.cluster import trials
from unseen.config.definitions import Definitions
from unseen.config.inputs import SweepInputs, Trial
from unseen.config.stages import SweepSettings, TrainSettings
from unseen.experiments.sweep import sweep as module
from unseen.experiments.sweep.record import load, save
from unseen.experiments.sweep.space import corners, draw, trial_recipes
from unseen.experiments.sweep.sweep import sweep
from unseen.runtime.errors import UserError
from unseen.runtime.files import unwritable_is_an_error

RATIO = "pooling.transport_ratio"
MACHINE = TrainSettings(gpu="no")
BROKEN, DEFECT = 0.66, 0.77


def run(
    params: Definitions,
    root: Path,
    ratios: list[float],
    output: Path,
    loop: Any = None,
    concurrent: int = 1,
    **more: Any,
) -> str | None:
    """A sweep of gsp on `parts` over transport ratios, in the form of stage `resolve`."""
    search = SweepSettings.parse({"space": {RATIO: {"grid": ratios}}, "iterations": 16, **more})
    values = corners(search.space) if search.searcher else draw(search)
    recipes = trial_recipes(params, "parts", "gsp", search, values)
    inputs = SweepInputs(
        space=search.space,
        seed=search.seed,
        seeds=search.seeds or (search.seed,),
        iterations=16,
        scheduler=search.scheduler,
        grace=search.grace,
        trials=tuple(
            Trial(values=value, recipe=recipe) for value, recipe in zip(values, recipes, strict=True)
        ),
        proposed=search.count if search.searcher else None,
        training_code="",
    )
    return sweep(params, "parts", "gsp", inputs, concurrent, MACHINE, root, output, loop)


def given_metric(log: Path) -> Callable[..., dict[str, float]]:
    """A loop whose map_at_r rises linearly to the transport ratio. A closure, so that workers receive it by
    value."""

    def loop(job: Any, rank: int, world: int, device: Any, report: Any = None) -> dict[str, float]:
        training, ratio = job.recipe.training, job.recipe.pooling.transport_ratio
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{ratio} {rank}/{world} {job.threads}\n")
        for iteration in range(training.validate_every, training.iterations + 1, training.validate_every):
            if ratio == BROKEN:
                raise UserError("The loss is not finite at step 3.", "Lower the learning rate.")
            if ratio == DEFECT:
                raise ValueError("a defect")
            time.sleep(0.01)
            metric = ratio * iteration / training.iterations
            metrics = ("recall_at_1", "r_precision", "map_at_r")
            report({"iteration": iteration, "epoch": 0.5, "loss": 1.0, **dict.fromkeys(metrics, metric)})
        return {"best": ratio}

    return loop


def trials_of(output: Path) -> list[dict[str, str]]:
    with open(output / "trials.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("I/O error (os error 28)")]
)
def test_a_full_disk_ends_the_sweep_and_is_no_result_of_a_trial(
    params: Definitions, root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    output, whole = root / "data/sweep/parts/gsp", given_metric(root / "log")

    def fills(job: Any, *others: Any) -> dict[str, float]:
        if job.recipe.pooling.transport_ratio == 0.1:
            with unwritable_is_an_error(root):
                raise error
        return whole(job, *others)

    with pytest.raises(UserError, match="The disk is full"):
        run(params, root, [0.8, 0.1], output, fills)
    assert not output.exists()
    run(params, root, [0.8, 0.1], output, whole)
    assert [row["error"] for row in trials_of(output)] == ["", ""]
    assert (root / "log").read_text().count("0.8") == 1, "the first trial is not repeated"


def test_a_trial_without_enough_memory_is_a_result(
    params: Definitions, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    output, whole = root / "data/sweep/parts/gsp", given_metric(root / "log")

    def exceeds(job: Any, *others: Any) -> dict[str, float]:
        if job.recipe.pooling.transport_ratio == 0.1:
            with unwritable_is_an_error(root):
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return whole(job, *others)

    run(params, root, [0.8, 0.1], output, exceeds)
    assert [bool(row["error"]) for row in trials_of(output)] == [False, True]


def test_a_sweep_that_was_killed_after_its_trainings_trains_nothing(
    params: Definitions, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    output, log = root / "data/sweep/parts/gsp", root / "log"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "write_results", Mock(side_effect=KeyboardInterrupt))
        run(params, root, [0.2], output, given_metric(log))
    run(params, root, [0.2], output, given_metric(log))
    assert log.read_text().count("0.2") == len(trials_of(output)) == 1


@pytest.mark.parametrize(
    "cluster",
    [False, pytest.param(True, marks=[pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(180)])],
)
def test_a_sweep_stops_bad_trials_and_records_failed_and_best_ones(
    cluster: bool,
    params: Definitions,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One trial at a time needs no cluster; the same results with one."""
    if cluster:
        request.getfixturevalue("ray_cluster")
    else:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(trials, "connection", None)
    output, log = root / "data/sweep/parts/gsp", root / "log"
    line = run(params, root, [0.8, 0.1, BROKEN, DEFECT, 0.05], output, given_metric(log))
    assert line == "dvc exp run -S '++datasets.parts.methods.gsp.pooling.transport_ratio=0.8'"
    rows = trials_of(output)
    assert [(row["iterations"], row["stopped_early"]) for row in rows] == [
        ("16", "False"),
        ("4", "True"),
        ("0", "False"),
        ("0", "False"),
        ("4", "True"),
    ]
    assert rows[2]["error"] == "The loss is not finite at step 3.\n  Lower the learning rate."
    assert rows[3]["error"].endswith("ValueError: a defect")
    assert json.loads((output / "best.json").read_text())["value"] == pytest.approx(0.8)
    assert json.loads((root / "data/logs/parts/gsp/sweep.json").read_text())["seconds"].keys() == set("01234")
    printed = capsys.readouterr()
    assert line in printed.out
    assert f"trial 0 ({RATIO} 0.8): iteration 16/16" in printed.err
    assert not (root / "data/state/sweep/parts/gsp").exists()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("ray_cluster")
def test_a_killed_sweep_runs_only_the_missing_trials(
    params: Definitions, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, log = root / "data/sweep/parts/gsp", root / "log"

    def killed(jobs: Any, trials: Any, directory: Path, *arguments: Any) -> None:
        metrics = dict.fromkeys(("recall_at_1", "r_precision", "map_at_r"), 0.9)
        row = {"iteration": 16.0, "epoch": 0.5, "loss": 1.0, **metrics, "seconds": 1.0}
        trials[0].rows, trials[0].finished = [row], True
        save(directory, trials[0])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "search", killed)
        run(params, root, [0.2, 0.3], output, given_metric(log), scheduler="none")
    assert not output.exists()
    run(params, root, [0.2, 0.3], output, given_metric(log), scheduler="none")
    assert log.read_text().split() == ["0.3", "0/1", "2"], "trial 0 did not run again"
    assert [float(trial["best_map_at_r"]) for trial in trials_of(output)] == [0.9, pytest.approx(0.3)]


OPTUNA = {"searcher": "optuna", "scheduler": "none", "total": 9, "seeds": [0, 1]}
RATIOS = [value / 100 for value in range(5, 95, 5)]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("ray_cluster")
def test_optuna_proposes_the_later_trials(params: Definitions, root: Path) -> None:
    pytest.importorskip("optuna")
    log = root / "log"
    run(params, root, RATIOS, root / "out", given_metric(log), **OPTUNA | {"total": 5, "seeds": [0]})
    trials = trials_of(root / "out")
    assert [trial["trial"] for trial in trials] == list("01234")
    assert all(float(trial["best_map_at_r"]) == float(trial[RATIO]) for trial in trials)
    assert sorted(line.split()[0] for line in log.read_text().splitlines()) == sorted(
        trial[RATIO] for trial in trials
    )


def test_a_killed_sweep_of_optuna_continues_with_the_same_trials(
    params: Definitions, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    trained: list[int] = []

    def trains(jobs: Any, trials: Any, directory: Path, *arguments: Any) -> None:
        """Trial 2 fails. The process ends after `limit` trainings."""
        for trial in (trial for trial in trials if not trial.finished):
            if len(trained) == limit:
                raise KeyboardInterrupt
            trained.append(trial.number)
            score = jobs[trial.number].recipe.pooling.transport_ratio - 0.01 * trial.seed
            metrics = dict.fromkeys(("recall_at_1", "r_precision", "map_at_r"), score)
            trial.rows = [{"iteration": 16.0, "epoch": 0.5, "loss": 1.0, **metrics, "seconds": 1.0}]
            trial.finished, trial.error = True, "not finite" if trial.number == 2 else None
            save(directory, trial)

    monkeypatch.setattr(module, "search", trains)
    limit = 99
    run(params, root, RATIOS, root / "whole", **OPTUNA)
    assert trained == list(range(18))
    trained.clear()
    limit = 11
    with pytest.raises(KeyboardInterrupt):
        run(params, root, RATIOS, root / "out", **OPTUNA)
    limit = 99
    run(params, root, RATIOS, root / "out", **OPTUNA, concurrent=3)
    assert trained == [*range(11), 2, *range(11, 18)]
    assert (root / "out/trials.csv").read_bytes() == (root / "whole/trials.csv").read_bytes()


def test_another_space_does_not_resume(
    params: Definitions, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories: list[Path] = []

    def stop(jobs: Any, trials: Any, directory: Path, *arguments: Any) -> None:
        directories.append(directory)
        assert load(directory, [({}, 0)]) != []
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "search", stop)
    for ratio, changes in ((0.8, {}), (0.8, {}), (0.7, {}), (0.8, {"grace": 2}), (0.8, {"concurrent": 2})):
        with pytest.raises(KeyboardInterrupt):
            run(params, root, [ratio], root / "out", **changes)
    assert len(set(directories)) == 3
    assert directories[0] == directories[1] == directories[4]


def test_a_data_set_outside_the_sweep_has_no_search(params: Definitions, root: Path) -> None:
    empty = SweepInputs(
        space=SweepSettings.parse({"space": {RATIO: {"grid": [0.1]}}}).space,
        seed=0,
        seeds=(0,),
        iterations=16,
        scheduler="asha",
        grace=1,
        trials=(),
        training_code="",
    )
    assert sweep(params, "parts", "gsp", empty, 1, MACHINE, root, root / "out") is None
    assert [path.name for path in (root / "out").iterdir()] == ["skipped.json"]
