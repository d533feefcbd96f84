"""Stages evaluate and analyze as a task of a cluster: equal bytes, their errors, and their end."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.copies import copy_code
from tests.resolved import write_resolved
from tests.training.jobs import recipe
from unseen.cluster import task as module
from unseen.cluster.connection import Cluster
from unseen.config.stages import TrainSettings
from unseen.data.embeddings import write
from unseen.runtime.errors import UserError
from unseen.runtime.stage import ROOT

CELL = ("parts", "ms", "0")
INTERVALS = {"confidence": 0.9, "seed": 3}
REDUCE = {"dim": 4, "whiten": "pca"}
ANALYZE = {"histogram_bins": 20, "bootstrap": 50, "reduce": REDUCE}
BODY = "    inputs = read_inputs("  # the first statement of the stages


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the code with the embeddings of one run and the resolved files of its stages."""
    copy_code(tmp_path)
    settings = recipe("baseline", training={"threads": 2}).model_dump(mode="json")
    write_resolved(tmp_path, "train", *CELL[:2], recipe=settings)
    evaluate = INTERVALS | {"recall_at": [1, 4], "reduce": REDUCE}
    write_resolved(tmp_path, "evaluate", *CELL[:2], evaluate=evaluate)
    write_resolved(tmp_path, "analyze", *CELL[:2], analyze=ANALYZE, intervals=INTERVALS)
    generator, labels = np.random.default_rng(0), np.repeat(np.arange(10), 6)
    for name in ("test", "test-last", "test-untrained", "test-features", "train"):
        vectors = generator.standard_normal((60, 8))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        path = tmp_path.joinpath("data/embeddings", *CELL, f"{name}.arrow")
        write(path, np.arange(60), labels, vectors.astype(np.float32))
    return tmp_path


def begin_with(project: Path, stage: str, statements: str) -> None:
    """`stage` executes `statements` first."""
    script = project / f"stages/{stage}.py"
    text = (ROOT / f"stages/{stage}.py").read_text(encoding="utf-8")
    assert text.count(BODY) == 1
    script.write_text(text.replace(BODY, f"    {statements}\n{BODY}"), encoding="utf-8")


def start(
    project: Path, stage: str, address: str | None, threads: str | None = None
) -> subprocess.Popen[str]:
    """The stage; `threads`: OMP_NUM_THREADS."""
    environment = os.environ | {"PYTHONPATH": str(project), "RAY_ADDRESS": address or ""}
    environment.pop("OMP_NUM_THREADS", None)
    return subprocess.Popen(
        [sys.executable, "-m", f"unseen.stages.{stage}", *CELL],
        cwd=project,
        env=environment | ({} if threads is None else {"OMP_NUM_THREADS": threads}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell lets the commands that it starts in the background ignore SIGINT, and so their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


def outputs(project: Path) -> dict[str, bytes]:
    folders = [project / "data" / name for name in ("metrics", "evaluation", "analysis")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(project).as_posix(): path.read_bytes() for path in files}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(("stage", "threads"), [("evaluate", "3"), ("analyze", None)])
def test_a_node_writes_the_bytes_of_this_machine(
    project: Path, cluster_address: str, stage: str, threads: str | None
) -> None:
    """The number of threads is that of the run. Ray would set it to the two CPUs of the task."""
    begin_with(
        project,
        stage,
        "import os; print('in', os.getppid(), os.environ.get('OMP_NUM_THREADS'), "
        "os.environ.get('RAY_ADDRESS') or None, flush=True)",
    )
    contents, parents = [], []
    for address in (None, cluster_address):
        process = start(project, stage, address, threads)
        output, _ = process.communicate(timeout=200)
        assert process.returncode == 0, output
        (line,) = [line.split() for line in output.splitlines() if line.startswith("in ")]
        parents.append(int(line[1]) == os.getpid())
        assert line[2:] == [str(threads), "None"]
        contents.append(outputs(project))
        for name in ("metrics", "evaluation", "analysis"):
            shutil.rmtree(project / "data" / name, ignore_errors=True)
    assert f"{stage} parts/ms/0: starting on the cluster at {cluster_address} with 2 CPUs ..." in output
    assert parents == [True, False], "on the cluster, a worker of Ray runs the stage"
    assert contents[0]
    assert contents[0] == contents[1]


@pytest.mark.ray
@pytest.mark.slow
def test_an_error_on_a_node_is_one_message_and_its_status(project: Path, cluster_address: str) -> None:
    project.joinpath("data/embeddings", *CELL, "test.arrow").unlink()
    process = start(project, "evaluate", cluster_address)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    lines = output.splitlines()
    assert lines[1].startswith("error: data/embeddings/parts/ms/0/test.arrow is missing")
    assert output.count("error:") == 1
    assert "Traceback" not in output
    begin_with(project, "evaluate", "raise SystemExit(7)")
    process = start(project, "evaluate", cluster_address)
    assert process.wait(timeout=200) == 7
    begin_with(project, "evaluate", "import os; os.kill(os.getpid(), 9)")
    process = start(project, "evaluate", cluster_address)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "error: Stage evaluate of parts/ms/0 was ended by SIGKILL on node " in output


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a stage ends with its parent on Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_remote_process_ends_with_the_stage(
    project: Path, cluster_address: str, number: signal.Signals
) -> None:
    begin_with(project, "evaluate", "import os, time; print('in', os.getpid(), flush=True); time.sleep(120)")
    process = start(project, "evaluate", cluster_address)
    assert process.stdout is not None
    line = next(line for line in process.stdout if line.startswith("in "))
    remote = psutil.Process(int(line.split()[1]))
    assert Path(remote.cwd()) == project
    began = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert "Traceback" not in output
    # Where the signal interrupts a call of Ray, Ray raises SystemExit(1) instead of the exception of SIGTERM.
    assert (
        process.returncode in {signal.SIGINT: (130,), signal.SIGTERM: (143, 1), signal.SIGKILL: (-9,)}[number]
    )
    psutil.wait_procs([remote], timeout=30)
    assert not remote.is_running() or remote.status() == psutil.STATUS_ZOMBIE
    assert time.monotonic() - began < 30


@pytest.mark.ray
@pytest.mark.slow
def test_a_task_of_a_killed_worker_starts_again(project: Path, cluster_address: str) -> None:
    begin_with(
        project,
        "evaluate",
        "import os, pathlib; again = pathlib.Path('again').exists(); pathlib.Path('again').touch(); "
        "again or os.kill(os.getppid(), 9) or os.kill(os.getpid(), 19)",
    )
    output, _ = start(project, "evaluate", cluster_address).communicate(timeout=200)
    assert output.count("starting on the cluster") == 2
    assert (project / "data/metrics/parts/ms/0.json").is_file(), output


@pytest.mark.parametrize(
    ("stage", "rows", "gpu", "free", "claimed"),
    [
        ("evaluate", 60, "auto", 1, False),
        ("evaluate", 101, "auto", 1, True),
        ("evaluate", 101, "yes", 1, True),
        ("evaluate", 101, "auto", 0, False),
        ("evaluate", 101, "no", 1, False),
        ("analyze", 101, "auto", 1, False),
    ],
)
def test_a_large_evaluation_reserves_a_gpu(
    stage: str,
    rows: int,
    gpu: str,
    free: int,
    claimed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    vectors = np.eye(4, dtype=np.float32)[np.arange(rows) % 4]
    write(
        tmp_path.joinpath("data/embeddings", *CELL, "test.arrow"), np.arange(rows), np.arange(rows), vectors
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "GPU_PAIRS", 10**4)
    monkeypatch.setattr(module, "settings", lambda *_: TrainSettings(gpu=gpu))
    monkeypatch.setattr(module, "Params", lambda: None)
    monkeypatch.setattr(module, "_free_gpus", lambda: free)
    cluster = Cluster(private=False, name="the cluster", cpus=4, gpus=1)
    monkeypatch.setattr(module, "connection", lambda *_, **__: contextlib.nullcontext(cluster))
    monkeypatch.setattr("unseen.cluster.connection._wait_for", lambda *_: None)
    monkeypatch.setattr(module, "shared_nodes", lambda *_: {})
    monkeypatch.setattr(module, "alive_nodes", dict)
    ran = []
    monkeypatch.setattr(module, "_output", lambda *arguments: ran.append(arguments) or 0)
    assert module.run_on_a_node(stage, CELL, 2, module.uses_gpu(stage, CELL)) == 0
    assert ran == [(stage, CELL, {"CPU": 2.0} | ({"GPU": 1.0} if claimed else {}), {})]
    assert ("with 2 CPUs and a GPU ..." in capsys.readouterr().err) == claimed


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_task_sees_the_gpu_that_it_reserved(
    gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray sets the variable of a task to its GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(module, "require_shared", lambda _: None)
    devices = tmp_path / "devices"
    devices.write_text("#!/bin/sh\necho $CUDA_VISIBLE_DEVICES\n", encoding="utf-8")
    devices.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(devices))
    *lines, status = module._task(tmp_path, "evaluate", CELL, {}, gpus)
    assert lines == ["3\n" if gpus else "\n"]
    assert status == 0


def test_a_dead_worker_is_replaced_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a death the resources of a lost node are waited for."""
    cluster = Cluster(private=False, name="the cluster", cpus=4, gpus=0)
    claims, checked = [], []
    monkeypatch.setattr(module, "connection", lambda *_, **__: contextlib.nullcontext(cluster))
    monkeypatch.setattr(Cluster, "claim", lambda _, *arguments: claims.append(arguments) or {"CPU": 2.0})
    monkeypatch.setattr(module, "shared_nodes", lambda *arguments: checked.append(arguments) or {})
    monkeypatch.setattr(module, "alive_nodes", lambda: {"first": "node a"})
    monkeypatch.setattr(module, "lost_nodes", lambda nodes: "")
    results = [module._WorkerDied("out of memory")] * 2 + [0]

    def output(*_: object) -> int:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(module, "_output", output)
    assert module.run_on_a_node("evaluate", CELL, 2) == 0
    assert claims == [(1, 2, "no", None), *[(1, 2, "no", {"first": "node a"})] * 2]
    assert checked == [({"CPU": 2.0}, 1)] * 3
    assert capsys.readouterr().err.count("evaluate parts/ms/0: starting on the cluster with 2 CPUs") == 3
    results[:] = [module._WorkerDied("out of memory")] * 3
    with pytest.raises(UserError, match=r"task of evaluate parts/ms/0 died 3 times: out of memory"):
        module.run_on_a_node("evaluate", CELL, 2)
