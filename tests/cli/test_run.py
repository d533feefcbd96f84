"""`unseen run`: in sequence or in parallel, and when the result is printed."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from dvc_parallel.errors import RunError
from unseen.cli import run as module
from unseen.runtime.errors import UserError
from unseen.runtime.stage import ROOT


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `run` calls; the parallel run has 6 slots on the cluster of RAY_ADDRESS."""
    made: list[object] = []

    def parallel(targets: list[str], options: list[str], slots: int, *_: object) -> int:
        made.append((targets, options, slots))
        if targets == ["absent"]:
            raise RunError("DVC does not find the target: absent", "List the stages.")
        return int(targets == ["bad"])

    monkeypatch.setattr(module, "run_in_sequence", lambda arguments: made.append(arguments) or 0)
    monkeypatch.setattr(module, "run_parallel", parallel)
    monkeypatch.setattr(module, "resources", lambda log: (6, 0))
    monkeypatch.setattr(module, "slots", lambda params, cpus, gpus: cpus)
    monkeypatch.setattr("unseen.cli.result.result", lambda: ["the verdict"])
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(ROOT)
    return made


def test_without_jobs_it_is_dvc_repro_and_prints_the_result(
    calls: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.run(["-f"], None) == 0
    assert module.run(["train"], 1) == 0
    assert calls == [["-f"], ["train"]]
    output = capsys.readouterr().out
    assert output.count("the verdict") == 1, "a run of some targets has no result"
    assert "total duration: " in output


def test_with_jobs_it_is_parallel_and_fails_with_a_stage(
    calls: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.run([], 3) == 0
    assert module.run(["bad", "-f"], 3) == 1
    with pytest.raises(UserError, match=r"does not find the target: absent\n  List the stages\."):
        module.run(["absent"], 3)
    assert calls == [([], [], 3), (["bad"], ["-f"], 3), (["absent"], [], 3)]
    assert capsys.readouterr().out.count("the verdict") == 1


def test_a_cluster_that_does_not_start_ends_a_stage(
    calls: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def parallel(
        targets: list[str], options: list[str], slots: int, prepare: Callable[..., object], *_: object
    ) -> int:
        prepare("train@parts-ms-0")
        return 0

    monkeypatch.setattr(module, "run_parallel", parallel)
    monkeypatch.setattr(module.RunCluster, "environment", Mock(side_effect=UserError("It ended.", "Read x.")))
    with pytest.raises(UserError, match=r"It ended\.\n  Read x\.") as ended:
        module.run([], 3)
    assert isinstance(ended.value.__cause__, RunError), "by which the other stages end"


def test_a_cluster_sets_the_number_of_jobs(calls: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    module.run([], None)
    module.run([], 2)
    assert calls == [([], [], 6), ([], [], 2)]


def test_an_axis_without_brackets_stops_before_dvc(
    calls: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("run:\n  methods: ms\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"params.yaml:2: run.methods is ms, which is not a list"):
        module.run([], None)
    assert calls == []


def test_trainings_that_take_all_gpus_run_one_at_a_time(
    calls: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("train: {workers: auto}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"train\.workers is auto: each training takes all GPUs"):
        module.run([], 2)
    assert module.run(["train"], 1) == module.run(["train"], None) == 0
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert module.run(["train"], 1) == 0
    with pytest.raises(UserError, match=r"train\.workers is auto"):
        module.run(["train"], None)
    assert calls == [["train"]] * 3
