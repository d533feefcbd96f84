"""The complete protocol: its numbers equal an oracle, kills at every point, reused members, its stage."""

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
    output_bytes,
    run_protocol,
    settings,
)
from tests.training.jobs import Killed

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


def test_the_numbers_equal_those_of_the_embeddings(uninterrupted: Path) -> None:
    metrics = json.loads((uninterrupted / "data/metrics/tiny/baseline/ensemble.json").read_text())
    members = [
        [
            side(uninterrupted / OUT / f"members/model-{model}-repeat-{repeat}/test.arrow")
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
        "training_protocol": "selected",
        "members": FOLDS * REPEATS,
        "ensembles": REPEATS**FOLDS,
        "separated_dimensions": 8,
        "concatenated_dimensions": 24,
        "queries": 4 * TEST,
        "lone_queries": 0,
        "gallery": 4 * TEST,
        "classes": TEST,
    }
    results = json.loads((uninterrupted / OUT / "results.json").read_text())
    assert results["metrics"] == metrics
    assert [ensemble["repeats"] for ensemble in results["ensembles"]] == [
        [a, b, c] for a in (1, 2) for b in (1, 2) for c in (1, 2)
    ]
    second = oracle.metrics(members[1][1], RECALL_AT)
    row = next(row for row in table(uninterrupted) if (row["model"], row["repeat"]) == ("2", "2"))
    assert {name: float(row[f"test_{name}"]) for name in second} == pytest.approx(second, abs=1e-9)


def test_each_member_has_its_own_fold_and_seed(uninterrupted: Path) -> None:
    rows = table(uninterrupted)
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
            uninterrupted / OUT / f"members/model-{row['model']}-repeat-{row['repeat']}/history.csv",
            newline="",
            encoding="utf-8",
        ) as file:
            history = list(csv.DictReader(file))
        best = max(history, key=lambda validation: float(validation["map_at_r"]))
        assert (row["iterations"], row["best_iteration"]) == ("4", best["iteration"])
        assert float(row["validation_map_at_r"]) == float(best["map_at_r"])
    embeddings = {path.read_bytes() for path in (uninterrupted / OUT).rglob("test.arrow")}
    assert len(embeddings) == FOLDS * REPEATS
    assert sorted(path.name for path in (uninterrupted / OUT).iterdir()) == [
        "members",
        "members.csv",
        "protocol.json",
        "results.json",
    ]
    assert not (uninterrupted / "data/state/ensemble/tiny/baseline").exists()
    assert not (uninterrupted / "data/models").exists()


def kill(patch: pytest.MonkeyPatch, module_or_class: Any, name: str, at: int) -> None:
    """Lets call `at` (from 0) of a function raise before it does any work."""
    original, calls = getattr(module_or_class, name), []

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == at + 1:
            raise Killed
        return original(*arguments, **named)

    patch.setattr(module_or_class, name, counted)


def test_a_repeatedly_killed_run_ends_with_the_same_bytes(
    fresh: Callable[[], Path], uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = fresh()
    for killed_module, name, at in (
        (loop, "train_step", 3),  # in the first training, after its second validation
        (member_training, "load_method", 0),  # between the training of a member and its export
        (loop, "train_step", 5),  # in the third training
        (member_training, "write_json", 1),  # in the export of a member
        (module, "score_ensembles", 0),  # after all trainings
        (module, "write_json", 0),  # the outputs exist, the metrics do not
    ):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            kill(patch, killed_module, name, at)
            run_protocol(root)
        assert not list((root / "data/metrics").rglob("*.json"))
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        kill(patch, loop, "train_step", 0)  # no step remains
        run_protocol(root)
    captured = capsys.readouterr()
    assert "ensemble: 6 members, 3 folds x 2 repeats, 6 of them finished before, 0 resume" in captured.err
    assert output_bytes(root) == output_bytes(uninterrupted)


def test_no_step_is_repeated(fresh: Callable[[], Path], capsys: pytest.CaptureFixture[str]) -> None:
    root, steps, train_step = fresh(), [], loop.train_step

    def counted(*arguments: Any) -> Any:
        steps.append((arguments[0].seed, arguments[1].step))
        if len(steps) == 7:
            raise Killed
        return train_step(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", counted)
        with pytest.raises(Killed):
            run_protocol(root, settings(folds=2, repeats=1))
        run_protocol(root, settings(folds=2, repeats=1))
    assert steps[6] == steps[7] == (1, 2)
    assert (
        sorted(set(steps))
        == sorted(steps[:6] + steps[7:])
        == [(seed, step) for seed in range(2) for step in range(4)]
    )
    errors = capsys.readouterr().err
    assert "model 2, repeat 1: member 2 of 2, seed 1, from step 2" in errors
    assert "2 members, 2 folds x 1 repeats, 1 of them finished before, 1 resume" in errors


def test_members_of_an_earlier_run_are_reused(fresh: Callable[[], Path], uninterrupted: Path) -> None:
    root, trained, train = fresh(), [], member_training.train
    shutil.copytree(uninterrupted / "data/ensemble", root / "data/ensemble")

    def counted(job: Any, *arguments: Any) -> Any:
        trained.append(job.seed)
        return train(job, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member_training, "train", counted)
        assert run_protocol(root, settings(recall_at=(8, 1)))["separated_recall_at_8"] > 0
        assert trained == []
        damaged = root / OUT / "members/model-1-repeat-1/test.arrow"
        damaged.write_bytes(damaged.read_bytes()[:-9] + bytes(9))
        shutil.rmtree(root / OUT / "members/model-2-repeat-2")
        run_protocol(root)
        assert trained == [0, 4]
        assert output_bytes(root) == output_bytes(uninterrupted)


def test_an_error_names_the_member(fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def train(job: Any, *arguments: Any) -> None:
        raise UserError("The loss is not finite at step 3.", "Lower the learning rate.")

    monkeypatch.setattr(member_training, "train", train)
    with pytest.raises(
        UserError, match=r"Model 1, repeat 1: The loss is not finite at step 3.\n  Lower the learning rate."
    ):
        run_protocol(fresh())


def test_the_number_of_parallel_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_hash_of_the_protocol_depends_on_every_field() -> None:
    protocol = EnsembleProtocol(4, 3, (1, 2))
    variants = [
        EnsembleProtocol(4, 4, (1, 2)),
        EnsembleProtocol(3, 3, (1, 2)),
        EnsembleProtocol(4, 3, (1,)),
        EnsembleProtocol(4, 3, (1, 2), spread=""),
    ]
    assert len({protocol.hash(), *(variant.hash() for variant in variants)}) == 5
    declared = protocol.declaration()
    assert declared["ties"] == "equal similarities in ascending order of row id"
    assert not {"bootstrap", "confidence", "interval", "nmi"} & declared.keys()


def test_the_stage_passes_the_settings_of_params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = resolve(project(tmp_path), "parts", "gsp").model_dump(mode="json")
    protocol = {"folds": 4, "repeats": 3, "seed": 0, "recall_at": [1], "member_code": "0123"}
    write_resolved(tmp_path, "ensemble", "parts", "gsp", recipe=recipe, **protocol)
    monkeypatch.chdir(tmp_path)
    passed_arguments: list[Any] = []
    monkeypatch.setattr(stage, "ensemble", lambda *arguments: passed_arguments.extend(arguments))
    stage.run("parts", "gsp")
    dataset, method, passed_recipe, settings, machine, root, cores, code = passed_arguments
    assert (dataset, method, passed_recipe) == (
        "parts",
        "gsp",
        resolve(Params(Path("params.yaml")), "parts", "gsp"),
    )
    assert (settings.folds, settings.repeats, settings.recall_at, code) == (4, 3, (1,), "0123")
    assert machine == TrainSettings(checkpoint_every=50)
    assert root == tmp_path
    assert cores >= 1
