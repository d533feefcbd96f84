"""The command `unseen`: its subcommands and its errors."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config import Params, resolve
from pipeline.config.inputs import Inputs, TrainInputs
from pipeline.resolution.code import Code
from pipeline.resolution.files import modules_of
from pipeline.runtime.stage import ROOT
from unseen import __version__, cli
from unseen.recipe import difference, recipe


def test_a_recipe_shows_every_value_and_the_line_that_sets_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["recipe", "parts", "gsp"])
    lines = capsys.readouterr().out.splitlines()
    (ratio,) = [line for line in lines if line.strip().startswith("transport_ratio:")]
    assert ratio.split()[1] == "0.3"
    file, _, number = ratio.split()[2].partition(":")
    assert "transport_ratio: 0.3" in Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1]
    fields = resolve(Params(), "parts", "gsp").model_dump(mode="json")
    assert len([line for line in lines if not line.startswith(" ")]) == len(fields)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["recipe", "parts", "gps"], 1, "Did you mean gsp?"),
        (["data", "cubs"], 1, "Unknown published data set 'cubs'"),
        (["recipes"], 2, "invalid choice"),
        (["run", "-j", "0"], 2, "0 is not a number of 1 or more"),
        (["recipe", "parts", "gsp", "--dif", "x", "y"], 2, "unknown arguments: y"),
    ],
)
def test_a_mistake_gives_a_message_and_a_status(arguments: list[str], status: int, message: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "unseen", *arguments], capture_output=True, text=True, check=False
    )
    assert process.returncode == status
    assert message in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (["run", "-f", "train@parts-ms-0"], (["train@parts-ms-0"], ["-f"], None)),
        (["run", "-j", "4", "report"], (["report"], [], 4)),
    ],
)
def test_run_passes_its_arguments(
    arguments: list[str], call: tuple[list[str], list[str], int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr("pipeline.scheduling.run.run", lambda *values: calls.append(values) or 3)
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 3
    assert calls == [call]


@pytest.mark.parametrize(
    ("arguments", "place"), [(["data", "cub"], "data/raw/cub"), (["data", "cub", "there"], "there")]
)
def test_data_are_fetched_into_the_directory(
    arguments: list[str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    monkeypatch.setattr("pipeline.ingest.files.download.fetch", lambda *call: calls.append(call))
    cli.main(arguments)
    assert calls == [("cub", place)]


def test_a_difference_lists_values_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    now = resolve(Params(), "parts", "gsp")
    code = Code(ROOT).closure(["stages.train", *modules_of(now)])
    changed = code | {"pipeline.losses.pairs": "another", "pipeline.gone": "0"}
    before = Inputs(TrainInputs(recipe=now.model_copy(update={"dim": 3})), changed)
    monkeypatch.setattr("unseen.recipe._at_revision", lambda *_: before)
    expected = [f"dim: 3 -> {now.dim}", "code: pipeline.gone", "code: pipeline.losses.pairs"]
    assert difference("parts", "gsp", "HEAD").splitlines() == expected


def test_the_version_equals_that_of_the_distribution() -> None:
    assert __version__.count(".") == 2
    assert "default" in recipe("parts", "ms")
