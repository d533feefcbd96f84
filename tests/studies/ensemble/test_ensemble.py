"""The protocol as a whole: its numbers against an oracle, kills at every point, members that are taken over,
its stage."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.config import Params, TrainSettings, resolve
from pipeline.runtime.errors import UserError
from pipeline.studies.ensemble import ensemble as module
from pipeline.studies.ensemble import member_training
from pipeline.studies.ensemble.ensemble_protocol import EnsembleProtocol
from pipeline.training import loop
from stages import ensemble as stage
from tests.oracles import ensembles as oracle
from tests.params import project
from tests.resolved import write_resolved
from tests.studies.ensemble.protocol_runs import (
    FOLDS,
    MACHINE,
    RECALL_AT,
    REPEATS,
    TEST,
    TRAIN,
    go,
    outs,
    settings,
)

pytestmark = pytest.mark.slow

OUT = Path("data/ensemble/tiny/baseline")


def side(path: Path) -> oracle.Side:
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    embedding, label, is_query, is_gallery = (
        table[name].to_pylist() for name in ("embedding", "label", "is_query", "is_gallery")
    )
    return embedding, label, is_query, is_gallery


def table(root: Path) -> list[dict[str, str]]:
    with open(root / OUT / "members.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_numbers_are_those_of_the_members_embeddings(whole: Path) -> None:
    metrics = json.loads((whole / "data/metrics/tiny/baseline/ensemble.json").read_text())
    members = [
        [
            side(whole / OUT / f"members/model-{model}-repeat-{repeat}/test.arrow")
            for repeat in range(1, REPEATS + 1)
        ]
        for model in range(1, FOLDS + 1)
    ]
    expected = oracle.protocol(members, RECALL_AT)
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert 0 < expected["separated_map_at_r"] < 1
    assert expected["separated_map_at_r_std"] > 0
    assert expected["concatenated_map_at_r_std"] > 0
    counts = {name: value for name, value in metrics.items() if name not in expected}
    assert counts == {
        "protocol": EnsembleProtocol(FOLDS, REPEATS, RECALL_AT).hash(),
        "members": FOLDS * REPEATS,
        "ensembles": REPEATS**FOLDS,
        "separated_dimensions": 8,
        "concatenated_dimensions": 24,
        "queries": 4 * TEST,
        "lone_queries": 0,
        "gallery": 4 * TEST,
        "classes": TEST,
    }
    results = json.loads((whole / OUT / "results.json").read_text())
    assert results["metrics"] == metrics
    assert [one["repeats"] for one in results["ensembles"]] == [
        [a, b, c] for a in (1, 2) for b in (1, 2) for c in (1, 2)
    ]
    second = oracle.metrics(members[1][1], RECALL_AT)
    row = next(row for row in table(whole) if (row["model"], row["repeat"]) == ("2", "2"))
    assert {name: float(row[f"test_{name}"]) for name in second} == pytest.approx(second, abs=1e-9)


def test_each_member_is_trained_beside_its_fold_from_a_seed_of_its_own(whole: Path) -> None:
    rows = table(whole)
    assert [(row["model"], row["repeat"], row["seed"]) for row in rows] == [
        (str(model), str(repeat), str(FOLDS * (repeat - 1) + model - 1))
        for repeat in (1, 2)
        for model in (1, 2, 3)
    ]
    third = TRAIN // 3
    for row in rows:
        block = FOLDS - int(row["model"])
        assert (int(row["first_validation_class"]), int(row["last_validation_class"])) == (
            block * third,
            (block + 1) * third - 1,
        )
        with open(
            whole / OUT / f"members/model-{row['model']}-repeat-{row['repeat']}/history.csv",
            newline="",
            encoding="utf-8",
        ) as file:
            history = list(csv.DictReader(file))
        best = max(history, key=lambda one: float(one["map_at_r"]))
        assert (row["iterations"], row["best_iteration"]) == ("4", best["iteration"])
        assert float(row["validation_map_at_r"]) == float(best["map_at_r"])
    embeddings = {path.read_bytes() for path in (whole / OUT).rglob("test.arrow")}
    assert len(embeddings) == FOLDS * REPEATS
    assert sorted(path.name for path in (whole / OUT).iterdir()) == [
        "members",
        "members.csv",
        "protocol.json",
        "results.json",
    ]
    assert not (whole / "data/state/ensemble/tiny/baseline").exists()
    assert not (whole / "data/models").exists()


class Killed(Exception):
    pass


def kill(patch: pytest.MonkeyPatch, where: Any, name: str, at: int) -> None:
    """Lets the `at`-th call of a function (from 0) raise before it does anything."""
    real, calls = getattr(where, name), []

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == at + 1:
            raise Killed
        return real(*arguments, **named)

    patch.setattr(where, name, counted)


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(
    fresh: Callable[[], Path], whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = fresh()
    for where, name, at in (
        (loop, "train_step", 3),  # in the first training, behind its second validation
        (member_training, "load_method", 0),  # between the training of a member and its export
        (loop, "train_step", 5),  # in the third training
        (member_training, "write_json", 1),  # in the export of a member
        (module, "score_ensembles", 0),  # when all are trained
        (module, "write_json", 0),  # the outs are there, the metrics are not
    ):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            kill(patch, where, name, at)
            go(root)
        assert not (root / "data/metrics").exists()
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        kill(patch, loop, "train_step", 0)  # no step is left
        go(root)
    said = capsys.readouterr()
    assert "ensemble: 6 members, 3 folds x 2 repeats, 6 of them finished before, 0 resume" in said.err
    assert outs(root) == outs(whole)


def test_no_step_is_taken_twice(fresh: Callable[[], Path], capsys: pytest.CaptureFixture[str]) -> None:
    root, steps, real = fresh(), [], loop.train_step

    def counted(*arguments: Any) -> Any:
        steps.append((arguments[0].seed, arguments[1].step))
        if len(steps) == 7:
            raise Killed
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", counted)
        with pytest.raises(Killed):
            go(root, settings(folds=2, repeats=1))
        go(root, settings(folds=2, repeats=1))
    assert steps[6] == steps[7] == (1, 2)
    assert (
        sorted(set(steps))
        == sorted(steps[:6] + steps[7:])
        == [(seed, step) for seed in range(2) for step in range(4)]
    )
    said = capsys.readouterr().err
    assert "model 2, repeat 1: member 2 of 2, seed 1, from step 2" in said
    assert "2 members, 2 folds x 1 repeats, 1 of them finished before, 1 resume" in said


def test_members_of_an_earlier_run_are_taken_over(fresh: Callable[[], Path], whole: Path) -> None:
    root, trained, real = fresh(), [], member_training.train
    shutil.copytree(whole / "data/ensemble", root / "data/ensemble")

    def counted(job: Any, *rest: Any) -> Any:
        trained.append(job.seed)
        return real(job, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member_training, "train", counted)
        assert go(root, settings(recall_at=(8, 1)))["separated_recall_at_8"] > 0
        assert trained == []
        damaged = root / OUT / "members/model-1-repeat-1/test.arrow"
        damaged.write_bytes(damaged.read_bytes()[:-9] + bytes(9))
        shutil.rmtree(root / OUT / "members/model-2-repeat-2")
        go(root)
        assert trained == [0, 4]
        assert outs(root) == outs(whole)


def test_an_error_says_which_member(fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def train(job: Any, *rest: Any) -> None:
        raise UserError("The loss is not finite at step 3.", "Lower the learning rate.")

    monkeypatch.setattr(member_training, "train", train)
    with pytest.raises(
        UserError, match=r"Model 1, repeat 1: The loss is not finite at step 3.\n  Lower the learning rate."
    ):
        go(fresh())


def test_how_many_are_trained_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = TrainSettings()
    assert module.concurrent_members(settings(concurrent=None), MACHINE, 8, 1) == 8
    assert module.concurrent_members(settings(concurrent=None), MACHINE, 8, 3) == 2
    assert module.concurrent_members(settings(concurrent=None), MACHINE, 2, 3) == 1
    assert module.concurrent_members(settings(concurrent=5), MACHINE, 2, 1) == 5
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert module.concurrent_members(settings(concurrent=None), auto, 8, 1) == 4
    assert module.concurrent_members(settings(concurrent=None), MACHINE, 8, 1) == 8
    assert module.concurrent_members(settings(concurrent=2), auto, 8, 1) == 2
    with pytest.raises(UserError, match=r"ensemble.concurrent is 5, but this machine has 4 GPU"):
        module.concurrent_members(settings(concurrent=5), auto, 8, 1)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(UserError, match=r"train.gpu is yes, and torch .* finds no GPU"):
        module.concurrent_members(settings(), TrainSettings(gpu="yes"), 8, 1)


def test_the_protocol_has_a_hash_that_follows_its_words() -> None:
    whole = EnsembleProtocol(4, 3, (1, 2))
    others = [
        EnsembleProtocol(4, 4, (1, 2)),
        EnsembleProtocol(3, 3, (1, 2)),
        EnsembleProtocol(4, 3, (1,)),
        EnsembleProtocol(4, 3, (1, 2), spread=""),
    ]
    assert len({whole.hash(), *(one.hash() for one in others)}) == 5
    declared = whole.declaration()
    assert declared["ties"] == "equal similarities in ascending order of row id"
    assert not {"bootstrap", "confidence", "interval", "nmi"} & declared.keys()


def test_the_stage_hands_over_what_params_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = resolve(project(tmp_path), "parts", "gsp").model_dump(mode="json")
    protocol = {"folds": 4, "repeats": 3, "seed": 0, "recall_at": [1], "member_code": "0123"}
    write_resolved(tmp_path, "ensemble", "parts", "gsp", recipe=recipe, **protocol)
    monkeypatch.chdir(tmp_path)
    found: list[Any] = []
    monkeypatch.setattr(stage, "ensemble", lambda *arguments: found.extend(arguments))
    stage.run("parts", "gsp")
    dataset, method, given, settings, machine, root, cores, code = found
    assert (dataset, method, given) == ("parts", "gsp", resolve(Params(Path("params.yaml")), "parts", "gsp"))
    assert (settings.folds, settings.repeats, settings.recall_at, code) == (4, 3, (1,), "0123")
    assert machine == TrainSettings(checkpoint_every=50)
    assert root == tmp_path
    assert cores >= 1
