"""The libraries of the trackers, without a server: what they show of a run that is trained, resumed and
evaluated."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.params import project
from tests.resolved import write_resolved
from unseen.config.tracking import track_results
from unseen.experiments.catalogue import definitions
from unseen.experiments.plan.files import files, plan
from unseen.methods.settings import parse_recipe
from unseen.runtime.code import Code
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.trackers import TrackedRun, Trackers

NAME = "parts/ms/0"
Seen = tuple[dict[str, list[tuple[int, float]]], dict[str, Any], str]  # rows, values at the end, recipe


def of_tensorboard(state: Path) -> Seen:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(state / "tensorboard" / NAME)).Reload()
    values = {
        name: [(event.step, make_ndarray(event.tensor_proto).item()) for event in events.Tensors(name)]
        for name in events.Tags()["tensors"]
    }
    ((_, recipe),) = values.pop("recipe")
    ends = {name: rows[0][1] for name, rows in values.items() if "/" in name}
    texts = {name: value.decode() if isinstance(value, bytes) else value for name, value in ends.items()}
    return {name: rows for name, rows in values.items() if "/" not in name}, texts, recipe.decode()


def of_mlflow(state: Path) -> Seen:
    from mlflow import MlflowClient

    client = MlflowClient((state / "mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("unseen").experiment_id])
    assert (run.info.run_name, run.info.status) == (NAME, "FINISHED")
    history = client.get_metric_history(run.info.run_id, "loss")
    ends = {name: value for name, value in (run.data.metrics | run.data.tags).items() if "/" in name}
    return {"loss": sorted({(each.step, each.value) for each in history})}, ends, str(run.data.params)


def of_wandb(state: Path) -> Seen:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    rows: dict[int, float] = {}
    ends: dict[str, Any] = {}
    recipe = ""
    for path in sorted((state / "wandb/wandb").glob("offline-run-*/*.wandb")):
        for content in log_records(path.read_bytes()):
            record = Record()
            record.ParseFromString(content)
            items = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
            if "loss" in items:
                rows[record.history.step.num] = json.loads(items["loss"])
            recipe += str(record.run.config)
            updates = {item.key or item.nested_key[0]: item.value_json for item in record.summary.update}
            ends |= {name: json.loads(value) for name, value in updates.items() if "/" in name}
    return {"loss": sorted(rows.items())}, ends, recipe


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of a file of W&B: after 7 bytes, the log format of LevelDB."""
    position, record = 7, b""
    while position + 7 <= len(content):
        if 2**15 - position % 2**15 < 7:  # no header fits the end of a block
            position += 2**15 - position % 2**15
        size, kind = struct.unpack_from("<HB", content, position + 4)
        record += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("name", "seen"), [("tensorboard", of_tensorboard), ("mlflow", of_mlflow), ("wandb", of_wandb)]
)
def test_stages_of_a_run_are_one_run(
    name: Any, seen: Callable[[Path], Seen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "wandb":
        pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    params = definitions(project(tmp_path, {"train.trackers": [name]}))
    recipe = params.layers("parts", "ms").recipe().model_dump(mode="json")
    write_resolved(tmp_path, "train", "parts", "ms", recipe=recipe)
    write_json(tmp_path / "digests.json", {"metrics.json": "cd"})
    for rows in ([(5, 0.5)], [(5, 0.5), (10, 0.25)]):  # killed, then resumed
        dumped = parse_recipe(recipe).model_dump(mode="json")
        trackers = Trackers([name], TrackedRun(NAME, tmp_path, dumped, starts=True))
        for step, loss in rows:
            trackers.log({"loss": loss}, step)
    trackers.end({"sha256/weights": "ab"})
    track_results("parts", "ms", 0, {"map_at_r": 0.25, "map_at_r_low": 0.125, "protocol": "x"}, tmp_path)
    curves, ends, recipe_text = seen(tmp_path / "data/state")
    assert curves == {"loss": [(5, 0.5), (10, 0.25)]}
    expected = {"sha256/weights": "ab", "sha256/metrics.json": "cd", "test/protocol": "x"}
    assert ends == expected | {"test/map_at_r": 0.25, "test/map_at_r_low": 0.125}
    assert "multi_similarity" in recipe_text


def test_a_tracker_that_cannot_start_gets_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("not a folder")
    trackers = Trackers(["tensorboard", "mlflow"], TrackedRun(NAME, tmp_path, {}, starts=True))
    trackers.log({"loss": 0.5}, 5)
    trackers.end({})
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[:2] for line in lines] == [
        ["warning", f" tracker {name} gets no more numbers of this stage"]
        for name in ("tensorboard", "mlflow")
    ]


@pytest.mark.parametrize(
    ("tracker", "message"),
    [
        ("neptune", "'tensorboard', 'mlflow' or 'wandb', got 'neptune'"),
        ({"module": "struct:Struct"}, "cannot be used as a part: Struct has no attribute `log`"),
        ({"module": "absent.mine:Mine"}, "No module named 'absent'"),
    ],
)
def test_refuses_what_is_no_tracker(
    tracker: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"params\.yaml:1: train\.trackers.*{message}"):
        plan(project(tmp_path, {"train.trackers": [tracker]}))


def test_trackers_are_in_no_file_of_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of them makes no stage stale."""
    folders = [tmp_path / str(number) for number in range(2)]
    resolved = []
    for folder, trackers in zip(folders, ([], ["mlflow"]), strict=True):
        folder.mkdir()
        run = plan(project(folder, {"train.trackers": trackers, "run.methods": ["ms"], "run.sweeps": []}))
        assert run.machine.trackers == tuple(trackers)
        monkeypatch.setattr(Code, "closure", lambda code, roots: dict.fromkeys(roots, ""))
        resolved.append(list(files(run, Code({}))))
    assert resolved[0] == resolved[1]
    assert resolved[0]
