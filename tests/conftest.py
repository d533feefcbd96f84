import contextlib
import os
import secrets
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
from xdist.scheduler import LoadScopeScheduling

# Equal examples in every run. pytest-timeout limits the time of a test.
hypothesis.settings.register_profile("unseen", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("unseen")

# One token for the cluster of the session and for private ones: Ray reads it once per process.
os.environ.setdefault("RAY_AUTH_MODE", "token")
if os.environ["RAY_AUTH_MODE"] == "token":
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

# torch.export cannot trace the type checks of the tests, and an export takes seconds.
os.environ["UNSEEN_ONNX"] = "0"

TESTS = Path(__file__).resolve().parent
CLUSTER_CPUS = 4
_CLUSTER = f"""
    import sys, ray
    ray.init(
        address="local", num_cpus={CLUSTER_CPUS}, num_gpus=0, include_dashboard=False, log_to_driver=False,
        object_store_memory={256 * 2**20},
    )
    print("address", ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.readline()
"""
ENVIRONMENT = {
    "RAY_TMPDIR": "/tmp",  # the path of a socket has at most 107 characters
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # tests start the processes that they need
    "RAY_worker_niceness": "0",  # as other processes: on a busy machine workers would hardly run
    "OMP_WAIT_POLICY": "passive",
}


@cache
def _group(nodeid: str) -> tuple[int, str]:
    """(order, name) of the tests that one process runs because they share what a fixture builds: a copy of
    the project, the cluster, the report, or something of a file. The README has a copy of its own, because
    its commands take as long as the other tests of the graph. Tests that wait for processes start first; the
    others use the cores beside them and fill the end of the run."""
    file = nodeid.partition("::")[0]
    folder, text = file.split("/")[1], (TESTS.parent / file).read_text(encoding="utf-8")
    if folder == "graph":
        return 0, file if file.endswith("test_readme.py") else folder
    if "pytest.mark.ray" in text or folder == "torture":
        return 1, "cluster" if "cluster_address" in text or "ray_cluster" in text else file
    return (2, folder) if folder == "report" else (3, file)


class _ByGroup(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)[1]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return _ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _group(item.nodeid)[0])


@pytest.fixture(scope="session")
def cluster_address() -> Iterator[str]:
    """The address of a Ray cluster on this machine that all tests of the session share."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_CLUSTER)],
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    started: list[psutil.Process] = []
    try:
        line = next((line for line in process.stdout if line.startswith("address")), "")
        assert line, "the cluster of the tests did not start"
        started = psutil.Process(process.pid).children(recursive=True)
        yield line.split()[1]
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.communicate("end\n", timeout=60)
        for child in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


@pytest.fixture
def ray_cluster(cluster_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """RAY_ADDRESS names the cluster of the session."""
    monkeypatch.setenv("RAY_ADDRESS", cluster_address)
    return cluster_address


@pytest.fixture(scope="session")
def tiny_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project root that holds the shards of data set `tiny` and nothing else."""
    from tests.training.jobs import write_tiny_set  # imports torch, which few tests need

    root = tmp_path_factory.mktemp("tiny")
    write_tiny_set(root)
    return root


@pytest.fixture
def root(tiny_set: Path, tmp_path: Path) -> Path:
    """A fresh project root over the same shards."""
    (tmp_path / "data/shards").mkdir(parents=True)
    (tmp_path / "data/shards/tiny").symlink_to(tiny_set / "data/shards/tiny")
    return tmp_path
