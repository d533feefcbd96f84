"""The command `unseen study`: the list, the price, and the runs in sequence."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.experiments.plan.test_price import Known
from unseen.cli import main as cli
from unseen.runtime.stage import ROOT

pytestmark = pytest.mark.slow
STUDY = {"title": "t", "methods": {"a": {"like": "ms"}}, "datasets": ["cub"]}
START = ("--force", "--single-item", "resolve")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the studies `mine` and `after`, which starts at it."""
    monkeypatch.setattr("unseen.runtime.stage.ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").touch()
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "studies").mkdir()
    content = {"mine": STUDY | {"search": {"total": 2}}, "after": STUDY | {"start": "mine"}}
    (tmp_path / "studies/studies.yaml").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


@pytest.fixture
def runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The calls of `unseen run`."""
    calls: list[object] = []
    monkeypatch.setattr("unseen.cli.run.run", lambda *values: calls.append(values) or 0)
    return calls


def test_lists_the_studies(runs: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["study"])
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in ("crt-table-8", "mine", "after"))
    assert "Whole by one command: " in printed
    assert not runs


def test_trains_the_study_before_and_then_the_study(
    runs: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["study", "after", "-j", "2"])
    assert runs == [((), 2), (START, 1), ((), 2)]
    printed = capsys.readouterr().out
    assert printed.index("mine: t\n") < printed.index("after: t\n")
    assert "search of each row on each data set: 2 trials\n" in printed


def test_a_run_that_fails_ends_the_command(
    runs: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for failing in ((), START):
        statuses = {(): 0, START: 0, failing: 3}
        monkeypatch.setattr("unseen.cli.run.run", lambda given, jobs, of=statuses: of[given])
        with pytest.raises(SystemExit) as ended:
            cli.main(["study", "after"])
        assert ended.value.code == 3
        assert ("after: t\n" in capsys.readouterr().out) is (failing == START)


def test_only_sets_params(folder: Path, runs: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["study", "after", "--no-run", "--seeds", "3"])
    printed = capsys.readouterr().out
    assert re.search(r"params.yaml: run.seeds = \[3\]\n(.*\n)*before:\n(.*\n)*  run.seeds = ", printed)
    cli.main(["study", "after", "--no-run", "--seeds", "3"])
    assert "params.yaml contains these axes already\n" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["study", "after", "--mini", "--datasets", "parts"])
    assert "--mini is the built-in set: leave out --datasets." in capsys.readouterr().err
    assert not runs


def test_the_price_of_a_study_and_of_a_run_changes_nothing(
    folder: Path, runs: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("unseen.experiments.plan.price.measured_seconds", lambda *_: 0.5)
    monkeypatch.setattr("unseen.cli.cost.Facts", lambda _: Known())
    cli.main(["study", "after", "--no-run"])
    params = (folder / "params.yaml").read_bytes()
    cli.main(["study", "after", "--cost", "--seeds", "5"])
    printed = capsys.readouterr().out
    assert re.findall(r"(\d+) trainings? with ([\d,]+) steps", printed) == [("3", "9,000"), ("1", "3,000")]
    before, after = re.findall(r"disk (\d\.\d+) GB", printed)
    assert before == after, "trials keep nothing"
    cli.main(["run", "--cost"])
    assert "1 training with 3,000 steps at most" in capsys.readouterr().out
    assert (folder / "params.yaml").read_bytes() == params
    assert not runs
    monkeypatch.setattr("unseen.cli.cost.memory_of_host", lambda: 2 * 10**9)
    with pytest.raises(SystemExit):
        cli.main(["run", "--cost"])
    error = capsys.readouterr().err
    assert "GB for 80 images, this machine has 2.0 GB.\n" in error
    assert re.search(r"Set train.images_per_pass to \d, or", error)
