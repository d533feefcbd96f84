"""Parallel runs of a small DVC project: states, failures, ends."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from dvc_objects.fs.utils import tmp_fname

from dvc_parallel.errors import RunError
from dvc_parallel.graph import Options, Stages
from dvc_parallel.parallel import read_options
from tests.dvc_parallel.conftest import Toy

pytestmark = [pytest.mark.graph, pytest.mark.timeout(200)]


def test_a_failure_stops_its_dependents_and_a_second_run_continues(toy: Toy) -> None:
    # Each cell waits for the other, so that they end only if they run at the same time.
    wait = "touch began-$1; until test -e began-x -a -e began-y; do sleep 0.05; done\n"
    toy.write("second.sh", f"{wait} cat first-$1 > second-$1; echo 'no disk for' $1; test $1 = x\n")
    status, output = toy.run()
    assert status == 1
    lines = output.splitlines()
    assert any("second@x: done" in line for line in lines)
    assert any("second@y: failed" in line for line in lines)
    assert "    no disk for y" in lines, "the last lines of the log"
    assert "  not started: 1 (last)" in lines
    # DVC leaves its temporary files if Ctrl-C or a kill ends it.
    temporary = [toy.path / tmp_fname(), toy.path / ".dvc/cache/files/md5/0a" / tmp_fname("0ab.dir")]
    for file in (*temporary, toy.path / "other.tmp"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    toy.write("second.sh", "cat first-$1 > second-$1\n")
    status, output = toy.run()
    assert status == 0
    assert "unchanged: 3 (first@x, first@y, second@x)" in output
    assert (toy.path / "last").read_text() == "x\ny\n"
    assert [file.exists() for file in temporary] == [False, False]
    assert (toy.path / "other.tmp").exists()
    assert "up to date" in toy.dvc("status")
    locked = (toy.path / "dvc.lock").read_text()
    status, output = toy.run()
    assert (status, "unchanged: 5" in output) == (0, True)
    assert "started" not in output
    assert (toy.path / "dvc.lock").read_text() == locked
    # A change of the source reruns its readers; their outputs are equal, so the other stages stay unchanged.
    toy.write("source", "another\n")
    status, output = toy.run()
    assert "unchanged: 3 (second@x, second@y, last)" in output
    assert output.count(": done") == 2
    # The first content is in the run cache.
    toy.write("source", "source\n")
    status, output = toy.run("second@x")
    assert "first@x: restored from the cache" in output
    assert "unchanged: 1 (second@x)" in output
    assert "last" not in output, "a target limits the run"
    status, output = toy.run("first@y", options=("-f",))
    assert "first@y: done" in output
    toy.write("params.yaml", "run:\n  datasets: x\n")
    status, output = toy.run()
    assert status == 1
    assert "an axis of a matrix is a single value ('Value' object is not iterable)" in output


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_ended_run_leaves_no_process(toy: Toy, kill: signal.Signals) -> None:
    toy.write("second.sh", "touch began-$1; exec sleep 1000\n")
    process = toy.start()
    # Two shells that run the stages, or the processes that replaced them.
    assert within(60, lambda: all((toy.path / f"began-{cell}").exists() for cell in "xy"))
    process.send_signal(kill)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == {signal.SIGINT: -2, signal.SIGTERM: 143, signal.SIGKILL: -9}[kill]
    assert within(10 if kill == signal.SIGKILL else 0, lambda: processes_in(toy.path) == []), processes_in(
        toy.path
    )
    if kill != signal.SIGKILL:
        assert output.count("  interrupted\n") == 2
        assert "not started: 1 (last)" in output


def test_refuses_an_unknown_target(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toy.path)
    stages = Stages()
    with pytest.raises(RunError, match="second@z") as caught:
        stages.graph(["second@z"])
    assert "dvc stage list" in caught.value.remedy
    assert set(stages.graph(["second"]).stages) == {"first@x", "first@y", "second@x", "second@y"}
    stages.close()


@pytest.mark.parametrize("value", ["x", "3"])
def test_an_axis_that_is_no_list_is_an_error(toy: Toy, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.chdir(toy.path)
    toy.write("params.yaml", f"run:\n  datasets: {value}\n")
    with pytest.raises(RunError, match="an axis of a matrix is a single value") as caught:
        Stages()
    assert "as lists" in caught.value.remedy


def test_refuses_options_that_concern_several_stages() -> None:
    assert read_options(["-k", "--force"]) == Options(force=True)
    with pytest.raises(RunError, match="--downstream is not an option of a parallel run"):
        read_options(["--downstream"])


def within(seconds: float, condition: object) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def processes_in(directory: Path) -> list[str]:
    """Command lines of the processes whose working directory is `directory`."""
    lines = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.cwd() == str(directory.resolve()):
                lines.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return lines


def test_the_files_of_dvc_equal_those_of_dvc_repro(toy: Toy, tmp_path: Path) -> None:
    """Bytes of dvc.lock and the cache, lines of .gitignore; also after a failure, and where git or another
    DVC wrote dvc.lock."""
    other = Toy(tmp_path / "sequence")
    text = (toy.path / "dvc.yaml").read_text() + "    metrics:\n    - score.json:\n        cache: false\n"
    text = text.replace("cat second-* > last", "\n    - cat second-* > last\n    - echo '{}' > score.json")
    toy.write("dvc.yaml", text)
    shutil.copytree(toy.path, other.path)
    for project in (toy, other):
        (project.path / ".dvc/config").unlink()
        shutil.rmtree(project.path / ".dvc")
        subprocess.run(["git", "init", "-q"], cwd=project.path, check=True)
        project.dvc("init", "-q")
    toy.write("second.sh", "test $1 = y && cat first-$1 > second-$1\n")
    assert toy.run()[0] == 1  # dvc.lock lacks second@x and contains second@y
    toy.write("second.sh", (other.path / "second.sh").read_text())
    assert_equal_to_dvc_repro(toy, other)
    for project in (toy, other):
        project.write("source", "another\n")
        locked = (project.path / "dvc.lock").read_text()
        project.write("dvc.lock", locked.replace("schema: '2.0'", 'schema: "2.0"'))
    assert_equal_to_dvc_repro(toy, other)
    for project in (toy, other):
        project.write("source", "source\n")  # from the run cache
        project.write("params.yaml", "run:\n  datasets: [w, x, y]\n")
    assert_equal_to_dvc_repro(toy, other)


def assert_equal_to_dvc_repro(toy: Toy, other: Toy) -> None:
    status, output = toy.run()
    assert status == 0, output
    other.dvc("repro")
    assert "up to date" in toy.dvc("status")
    assert files(toy.path) == files(other.path)


def files(directory: Path) -> dict[str, bytes]:
    """The files of a project that do not depend on the time of a run; of .gitignore the sorted lines."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    names = {path: str(path.relative_to(directory)) for path in paths}
    left_out = (".git/", ".dvc/tmp", "logs/", "sequence/")
    content = {name: path.read_bytes() for path, name in names.items() if not name.startswith(left_out)}
    return content | {".gitignore": b"".join(sorted(content[".gitignore"].splitlines(keepends=True)))}
