"""`ray job submit` of docs/cluster.md, to a cluster with a dashboard on this machine."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import psutil
import pytest

from tests.conftest import ENVIRONMENT
from tests.deploy.kuberay import HEALTH
from tests.torture.miniature import Project, project

CELL = "parts-ms-0"
_CLUSTER = """
    import sys
    from ray._common.network_utils import find_free_port
    from ray.cluster_utils import Cluster
    agent = find_free_port()
    head = {
        "num_cpus": 2, "num_gpus": 0, "object_store_memory": 100 * 2**20, "include_dashboard": True,
        "dashboard_port": find_free_port(), "dashboard_agent_listen_port": agent,
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    print("dashboard", cluster.webui_url, agent, flush=True)
    sys.stdin.readline()
    cluster.shutdown()
"""


@contextmanager
def _cluster(copy: Project) -> Iterator[tuple[str, str]]:
    """The addresses of the job server and the agent of a cluster whose jobs have the environment of `copy`.

    Its folder is its own: Ray gives a job the address that it finds there.
    """
    with TemporaryDirectory(prefix="uj-", dir="/tmp") as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_CLUSTER)],
            cwd=copy.scratch,
            env=copy.environment() | ENVIRONMENT | {"RAY_TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        processes: list[psutil.Process] = []
        try:
            line = next((line for line in process.stdout if line.startswith("dashboard ")), "")
            assert line, "the cluster did not start"
            processes = psutil.Process(process.pid).children(recursive=True)
            _, server, agent = line.split()
            yield f"http://{server}", f"http://127.0.0.1:{agent}"
        finally:
            process.communicate("end\n", timeout=60)
            _, alive = psutil.wait_procs(processes, timeout=30)
            for each in alive:
                each.kill()


def _submit(copy: Project, address: str, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ray", "job", "submit", "--address", address, "--", "bash", "-c", f"cd '{copy.path}' && {command}"],
        cwd=copy.scratch,
        env=copy.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.ray
@pytest.mark.graph
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("aiohttp_cors") is None, reason="`make cluster` installs the job server of Ray")
def test_a_submitted_job_runs_the_graph_on_the_cluster() -> None:
    from ray.dashboard.http_server_agent import PUBLIC_EXACT_PATHS

    assert HEALTH in PUBLIC_EXACT_PATHS, "a probe has no token"
    with project() as copy, _cluster(copy) as (address, agent):
        job = _submit(copy, address, f"unseen run -j 2 train@{CELL}")
        assert job.returncode == 0, job.stdout
        assert "succeeded" in job.stdout
        assert (copy.path / "data/models/parts/ms/0/weights.safetensors").is_file()
        log = json.loads((copy.path / "data/logs/parts/ms/0.json").read_text(encoding="utf-8"))
        assert log["ray_seconds"]["start"] > 0  # Ray started the worker
        with urlopen(agent + HEALTH) as answer:  # raises HTTPError for another status than that of success
            assert answer.read() == b"raylet: success\ngcs: success"
        failing = _submit(copy, address, "exit 3")
        assert failing.returncode != 0
        assert "exit code 3" in failing.stdout
