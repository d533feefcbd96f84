"""The ladder: rungs on unseen classes, the choice by held-out classes, and the written model."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from tests.photos import save_products
from tests.torch_counter import TorchCounter
from unseen.cli import main as cli
from unseen.cli.ladder import groups_of
from unseen.data.splits import grouped
from unseen.evaluation.external import evaluate_vectors
from unseen.evaluation.record import Record, Run
from unseen.evaluation.statistics.better import Family, Verdict, decide
from unseen.experiments.ladder import ladder as module
from unseen.experiments.ladder import runner
from unseen.experiments.ladder.head import HeadTrainer
from unseen.experiments.ladder.ladder import LadderPlan, Rung, ladder
from unseen.frozen import pictures
from unseen.frozen import tail as adapt
from unseen.frozen.embedder import Embedder
from unseen.frozen.linear import LinearTrainer, mapped
from unseen.frozen.network import Network
from unseen.frozen.tail import AdaptTrainer
from unseen.frozen.trained import Task, Trained, Trainer
from unseen.networks.published_network import timm
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError

BETTER = {"difference": 0.02, "low": 0.01, "high": 0.03, "p_value": 0.001, "classes": 20}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return save_products(tmp_path / "photos", 20, 3)


@pytest.fixture(autouse=True)
def short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearTrainer, "lengths", (1, 2))
    monkeypatch.setattr(HeadTrainer, "lengths", (1, 2))
    monkeypatch.setattr(AdaptTrainer, "lengths", (1, 2))
    monkeypatch.setattr(adapt, "HEAD_STEPS", 1)


@pytest.fixture
def network(tmp_path: Path) -> Network:
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "w.safetensors")
    return Network("test_resnet.r160_in1k", tmp_path / "w.safetensors")


@pytest.mark.slow
def test_evaluates_rungs_on_classes_that_chose_nothing(
    photos: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_torch = TorchCounter()
    monkeypatch.setattr(module, "tile_counter", lambda: on_torch)
    monkeypatch.setattr(runner, "tile_counter", lambda: on_torch)
    result = ladder(photos, tmp_path / "out", LadderPlan(network, (32, 48), adapt=False))
    assert [(rung.name, rung.size) for rung in result.rungs][:2] == [("frozen", 32), ("frozen", 48)]
    test = sorted(result.split.test)
    assert len(test) == 10
    folds = {3 * len(fold) for fold in result.split.folds}
    assert set(on_torch.galleries) == {30, *folds}
    files = [photos / name / f"{number}.png" for name in test for number in range(3)]
    names = [path.parent.name for path in files]
    for rung in result.rungs[:2]:
        embedder = Embedder(Network(network.name, network.weights, rung.size))
        expected = evaluate_vectors(embedder(files), names, recall_at=(1,))
        assert rung.test["map_at_r"] == pytest.approx(expected["map_at_r"], abs=1e-9)
        assert rung.test["classes"] == 10
        assert rung.products.rules["nearest"].value == pytest.approx(rung.test["recall_at_1"])
    best = max(result.rungs[:2], key=lambda rung: rung.validation)
    assert result.rungs[2].size == best.size
    assert result.chosen.size == best.size
    held_out = [
        evaluate_vectors(embedded, [path.parent.name for path in of_fold])["map_at_r"]
        for fold in result.split.folds
        for of_fold in [[photos / name / f"{number}.png" for name in sorted(fold) for number in range(3)]]
        for embedded in [Embedder(Network(network.name, network.weights, best.size))(of_fold)]
    ]
    sizes = [len(fold) for fold in result.split.folds]
    assert best.validation == pytest.approx(np.average(held_out, weights=sizes), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("ahead", "ship"), [(False, False), (True, False), (True, True)])
def test_writes_the_rung_that_held_out_classes_choose(
    photos: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool, ship: bool
) -> None:
    decide_by(monkeypatch, BETTER if ahead else BETTER | {"low": -0.01})
    output = tmp_path / "out"
    result = ladder(photos, output, LadderPlan(network, (32,), head=None, adapt=False, ship=ship))
    assert result.chosen.name == ("linear" if ahead else "frozen")
    assert result.rungs[1].outcome == ("distinct over these classes" if ahead else "open")
    about = json.loads((output / "model/network.json").read_text())
    assert ("linear" in about) is ahead
    trained = {f"product {number:02d}" for number in range(20)} - (set() if ship else result.split.test)
    assert Embedder(output / "model").training_classes == (trained if ahead else set())
    files = [photos / "product 00/0.png", photos / "product 01/1.png"]
    vectors = Embedder(output / "model")(files)
    published = Embedder(Network(network.name, network.weights, 32))(files)
    if not ahead:
        assert abs(vectors - published).max() < 1e-6
        return
    assert about["linear"]["photos"] == (60 if ship else 30)
    assert about["linear"]["measured"] is not ship
    weight = Embedder(output / "model").method.linear.numpy()
    assert abs(vectors - mapped(published, weight)).max() < 1e-5
    assert abs(vectors - published).max() > 1e-5
    test = sorted(result.split.test)
    files = [photos / name / f"{number}.png" for name in test for number in range(3)]
    metrics = evaluate_vectors(Embedder(output / "model")(files), [path.parent.name for path in files])
    if not ship:
        assert metrics["map_at_r"] == pytest.approx(result.chosen.test["map_at_r"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 4])
def test_folds_whose_classes_have_one_photo_choose_nothing(
    photos: Path, network: Network, tmp_path: Path, count: int
) -> None:
    folds = grouped([f"product {number:02d}" for number in range(20)], 0.5, 4, 0).folds
    for name in frozenset().union(*folds[:count]):
        for number in (1, 2):
            (photos / name / f"{number}.png").unlink()
    plan = LadderPlan(network, (32,), head=None, adapt=False)
    if count == 4:
        with pytest.raises(UserError, match="No training class has two pictures"):
            ladder(photos, tmp_path / "out", plan)
    else:
        result = ladder(photos, tmp_path / "out", plan)
        assert all(0 <= rung.validation <= 1 for rung in result.rungs)
        assert result.rungs[1].steps in (1, 2)


def decide_by(monkeypatch: pytest.MonkeyPatch, changes: dict[str, float]) -> None:
    """Changes all comparisons of trained rungs with the frozen one."""
    judge = module.judge

    def judged(records: dict[Run, Record], family: Family) -> list[Verdict]:
        compared = [verdict.comparison._replace(**changes) for verdict in judge(records, family)]
        return decide(compared, [0.003] * len(compared), [None] * len(compared))

    monkeypatch.setattr(module, "judge", judged)


def choose(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Lets held-out classes choose the rung `name`."""
    measured = module._rung

    def rung(*arguments: object) -> tuple[Rung, dict[str, Record]]:
        rung, records = measured(*arguments)
        return rung._replace(validation=float(rung.name == name)), records

    decide_by(monkeypatch, BETTER)
    monkeypatch.setattr(module, "_rung", rung)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "ship"), [("gsp", False), ("multihead", True)])
def test_writes_network_and_head_as_a_trained_model(
    photos: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ship: bool, method: str
) -> None:
    choose(monkeypatch, "head")
    output = tmp_path / "out"
    result = ladder(photos, output, LadderPlan(network, (64,), head=method, adapt=False, ship=ship))
    assert [rung.name for rung in result.rungs] == ["frozen", "linear", "head"]
    assert result.chosen.name == "head"
    assert result.chosen.steps in (1, 2)
    about = json.loads((output / "model/recipe.json").read_text())
    assert about["weights_sha256"] == {"weights": sha256_of(output / "model/weights.safetensors")}
    assert about["samples"] == (60 if ship else 30)
    assert len(Embedder(output / "model").training_classes or ()) == (20 if ship else 10)
    assert str(tmp_path) not in json.dumps(about)
    test = sorted(result.split.test)
    files = [photos / name / f"{number}.png" for name in test for number in range(3)]
    metrics = evaluate_vectors(Embedder(output / "model")(files), [path.parent.name for path in files])
    if not ship:  # maps are rounded to float16
        assert metrics["map_at_r"] == pytest.approx(result.chosen.test["map_at_r"], abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("ship", [False, True])
def test_writes_the_network_with_adapted_layers(
    photos: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ship: bool
) -> None:
    choose(monkeypatch, "adapt")
    output = tmp_path / "out"
    result = ladder(photos, output, LadderPlan(network, (32,), head=None, ship=ship))
    assert [rung.name for rung in result.rungs] == ["frozen", "linear", "adapt"]
    assert result.chosen.name == "adapt"
    about = json.loads((output / "model/network.json").read_text())["adapted"]
    assert about["photos"] == (60 if ship else 30)
    assert about["measured"] is not ship
    test = sorted(result.split.test)
    files = [photos / name / f"{number}.png" for name in test for number in range(3)]
    metrics = evaluate_vectors(Embedder(output / "model")(files), [path.parent.name for path in files])
    if not ship:  # the inputs of the last layers are rounded to float16
        assert metrics["map_at_r"] == pytest.approx(result.chosen.test["map_at_r"], abs=0.03)


@pytest.mark.slow
def test_measures_every_rung_on_photos_of_another_kind(
    photos: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = save_products(tmp_path / "other", 4, 3, first=50)
    choose(monkeypatch, "linear")
    plain = ladder(photos, tmp_path / "plain", LadderPlan(network, (32,), head=None))
    result = ladder(photos, tmp_path / "out", LadderPlan(network, (32,), head=None, other=other, ship=True))
    files = sorted(other.glob("*/*.png"))
    names = [path.parent.name for path in files]
    for rung, without in zip(result.rungs, plain.rungs, strict=True):
        assert rung.test == without.test
        assert rung.other["queries"] == 12
        assert rung.other["classes"] == 4
        assert without.other is None
        assert without.other_difference is None
    published = Embedder(Network(network.name, network.weights, 32))(files)
    expected = evaluate_vectors(published, names, recall_at=(1,))["map_at_r"]
    assert result.rungs[0].other["map_at_r"] == pytest.approx(expected, abs=1e-9)
    difference = result.rungs[1].other_difference
    assert difference.first == pytest.approx(expected, abs=1e-9)
    assert difference.second == pytest.approx(result.rungs[1].other["map_at_r"], abs=1e-9)
    about = json.loads((tmp_path / "out/model/network.json").read_text())
    assert about["linear"]["photos"] == 60, "the photos of another kind train nothing"


def test_refuses_photos_of_another_kind_that_are_the_same(
    photos: Path, network: Network, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"0\.png is also one of the first photos"):
        ladder(photos, tmp_path / "out", LadderPlan(network, (32,), other=photos))
    with pytest.raises(UserError, match=r"No photo of .* has a label"):
        ladder(photos, tmp_path / "out", LadderPlan(network, (32,), other=photos / "product 00"))
    lone = save_products(tmp_path / "lone", 3, 1, first=50)
    with pytest.raises(UserError, match=r"No class of .*lone has two pictures"):
        ladder(photos, tmp_path / "out", LadderPlan(network, (32,), other=lone))


def test_refuses_an_unknown_head_before_the_network_runs(
    photos: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Embedder, "__call__", None)
    with pytest.raises(UserError, match="no method gps"):
        ladder(photos, tmp_path / "out", LadderPlan(network, (32,), head="gps"))


@pytest.mark.slow
def test_features_are_computed_once(
    photos: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    call = Embedder.__call__

    def counted(self: Embedder, pictures: list[Path], label: str | None = None) -> np.ndarray:
        counts.append(len(pictures))
        return call(self, pictures, label)

    monkeypatch.setattr(Embedder, "__call__", counted)
    first = ladder(photos, tmp_path / "out", LadderPlan(network, (32,), head=None))
    second = ladder(photos, tmp_path / "out", LadderPlan(network, (32, 48), head=None))
    assert counts == [60, 60]
    assert second.rungs[0].test == first.rungs[0].test


class Trainings:
    """The names of the trainings of `linear` and `adapt`; after `most` of them Ctrl-C is pressed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.most: int | None = None
        for trainer in (LinearTrainer, AdaptTrainer):
            monkeypatch.setattr(trainer, "train", self._counted(trainer.train))

    def _counted(self, train: Callable[[Any, Task], list[Trained]]) -> Callable[[Any, Task], list[Trained]]:
        def counted(trainer: Trainer, task: Task) -> list[Trained]:
            if len(self.names) == self.most:
                raise KeyboardInterrupt
            self.names.append(trainer.name)
            return train(trainer, task)

        return counted

    def new(self) -> list[str]:
        names = list(self.names)
        self.names.clear()
        return names


@pytest.mark.slow
def test_a_stopped_ladder_continues_with_the_trainings_that_are_missing(
    photos: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, trainings = LadderPlan(network, (32,), head=None), Trainings(monkeypatch)
    whole = ladder(photos, tmp_path / "whole", plan)
    assert sorted(trainings.new()) == ["adapt"] * 5 + ["linear"] * 5
    trainings.most = 5
    with pytest.raises(KeyboardInterrupt):
        ladder(photos, tmp_path / "out", plan)
    assert trainings.new() == ["linear", "adapt", "linear", "adapt", "linear"]
    trainings.most = None
    continued = ladder(photos, tmp_path / "out", plan)
    assert sorted(trainings.new()) == ["adapt"] * 3 + ["linear"] * 2
    again = ladder(photos, tmp_path / "out", plan)
    assert trainings.new() == []
    for result in (continued, again):
        assert [rung._replace(seconds=0) for rung in result.rungs] == [
            rung._replace(seconds=0) for rung in whole.rungs
        ]
    assert again.rungs[2].seconds > 0.9 * sum(record.cpu_seconds for record in records_of(tmp_path, "adapt"))

    vectors = sorted((tmp_path / "out/vectors").glob(f"*.{again.rungs[1].steps}.parquet"))
    vectors[0].write_bytes(b"damaged")
    assert ladder(photos, tmp_path / "out", plan).rungs[1].test == whole.rungs[1].test
    assert len(trainings.new()) == 1, "the run of the damaged file trains again"
    ladder(photos, tmp_path / "out", replace(plan, loss="cosface", adapt=False))
    assert trainings.new() == ["linear"] * 5, "another loss is another training"


def records_of(folder: Path, rung: str) -> list[Record]:
    paths = (folder / "out/records").iterdir()
    records = [Record.parse(json.loads(path.read_text())) for path in paths]
    return [record for record in records if record.settings["rung"] == rung]


def test_a_shipped_model_is_stated_to_be_unmeasured(
    photos: Path,
    network: Network,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    choose(monkeypatch, "linear")
    other = save_products(tmp_path / "other", 4, 3, first=50)
    options = [
        "--network",
        network.name,
        "--weights",
        str(network.weights),
        "--sizes",
        "32",
        "--head",
        "none",
    ]
    command = ["ladder", str(photos), str(tmp_path / "out"), *options, "--no-adapt", "--ship"]
    cli.main([*command, "--other", str(other)])
    content = json.loads((tmp_path / "out/ladder.json").read_text())
    printed = capsys.readouterr().out
    assert f"On 12 photos of another kind, 4 classes of {other}:\n  linear changes MAP@R from " in printed
    steps = f"for the {content['chosen']['steps']} steps that held-out classes chose"
    assert f"The written model is linear, trained on all labelled classes {steps}." in printed
    assert "measured in the comparison" in printed
    about = json.loads((tmp_path / "out/model/network.json").read_text())["linear"]
    assert (about["photos"], about["classes"], about["measured"]) == (60, 20, False)
    cli.main([*command, "--json"])
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "out/ladder.json").read_text())


@pytest.mark.slow
def test_the_command_prints_the_table_and_its_model_builds_a_catalog(
    photos: Path, network: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = tmp_path / "groups.csv"
    rows = [f"product {number:02d},{number // 2}" for number in range(20)]
    groups.write_text("\n".join(["label,group", *rows, ""]))
    options = ["--network", network.name, "--weights", str(network.weights), "--sizes", "32"]
    output = tmp_path / "out"
    cli.main(["ladder", str(photos), str(output), *options, "--groups", str(groups)])
    printed, progress = capsys.readouterr()
    assert re.search(r"ladder: held-out classes: \d+/\d+ runs", progress)
    assert "30 photos of 10 unseen classes, 10 training classes" in printed
    lines = printed.splitlines()
    assert lines[1].startswith("Chosen: ")
    assert lines[2].startswith("On the test classes: MAP@R "), "the numbers of the test classes are first"
    assert lines[2].endswith("of the photos get the right product by the rule `nearest`.")
    assert "linear is not shown to pay here (too few classes to decide): " in printed
    assert "Training the last layers" in printed
    assert f"Page, picture and all numbers: {output / 'ladder.html'}, ladder.svg, ladder.json" in printed
    content = json.loads((output / "ladder.json").read_text())
    for rung in content["rungs"]:
        right = rung["products"]["rules"]["nearest"]["value"]
        assert right == pytest.approx(rung["test"]["recall_at_1"])
        assert f"{100 * right:.3g}%*" in printed
    html = (output / "ladder.html").read_text()
    chosen = content["chosen"]
    heading = f"<h1>Chosen: {chosen['name']}, {chosen['size']} pixels</h1>"
    parts = [html.index(part) for part in (heading, "<p>Training a linear layer", "<svg", "<h2>Rungs")]
    assert parts == sorted(parts), "the verdict is first"
    assert f"<td>{100 * chosen['test']['recall_at_1']:.3g}%*</td>" in html
    assert "<h2>Image size" in html
    assert "<th>whitened class mean</th>" in html
    assert lines[2].split(" by ")[0] in html
    assert 'src="http' not in html
    assert 'href="http' not in html
    assert (output / "ladder.svg").read_text().count("<circle") == len(content["rungs"])
    assert {int(name[-2:]) // 2 for name in content["test_classes"]} == {
        int(name[-2:]) // 2 for name in content["test_classes"] if int(name[-2:]) % 2
    }
    cli.main(["index", str(photos), str(tmp_path / "catalog"), "--model", str(output / "model")])
    assert "60 pictures" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["ladder", str(photos), str(output), *options, "--groups", str(tmp_path / "none.csv")])
    assert "none.csv cannot be read" in capsys.readouterr().err


def test_a_class_with_two_groups_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "groups.csv").write_text("label,group\na,1\nb,1\na,1\na,2\n")
    with pytest.raises(UserError, match=r"groups\.csv:5: a is also in 1"):
        groups_of(tmp_path / "groups.csv")


def test_refuses_too_few_classes_before_a_picture_is_read(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = save_products(tmp_path / "few", 15, 2)
    monkeypatch.setattr(pictures, "outcomes", None)
    with pytest.raises(UserError, match=f"The photos of {few} have 15 classes; .* needs 16"):
        ladder(few, tmp_path / "out", LadderPlan(network, (32,)))


def test_refuses_photos_without_labels_and_damaged_photos(
    photos: Path, network: Network, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"No photo of .* has a label"):
        ladder(photos / "product 00", tmp_path / "out", LadderPlan(network, (32,)))
    (photos / "product 00/0.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"0\.png cannot be read"):
        ladder(photos, tmp_path / "out", LadderPlan(network, (32,)))
