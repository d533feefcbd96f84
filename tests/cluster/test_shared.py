"""A node without the storage that all nodes share."""

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import ENVIRONMENT
from tests.torture.results import ROOT
from tests.training.jobs import write_tiny_set

_NAMESPACE = ("unshare", "--map-root-user", "--mount")
# Statements on a head without CPUs and a node where the directories `hidden` are empty.
_STAGE = """
    import os
    import subprocess
    import sys
    from pathlib import Path
    from ray.cluster_utils import Cluster
    from unseen.cluster.export import embedding_workers
    from unseen.cluster.task import run_on_a_node
    from unseen.cluster.training import run_training
    from unseen.config.stages import ExportSettings, TrainSettings
    from unseen.runtime.errors import UserError
    from tests.training.jobs import job, recipe

    statements, root, *hidden = sys.argv[1:]
    store = 80 * 2**20
    head = {"num_cpus": 0, "object_store_memory": store, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    mounts = "".join(f"mount -t tmpfs tmpfs '{path}' && " for path in hidden)
    start = f"ray.scripts.scripts start --num-cpus 2 --object-store-memory {store} --block"
    node = subprocess.Popen(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mounts + 'exec "$@"', "sh",
         sys.executable, "-m", *start.split(), "--address", cluster.address],
        cwd="/", stdout=subprocess.DEVNULL,
    )
    os.environ |= {"RAY_ADDRESS": cluster.address, "UNSEEN_RAY_WAIT": "200"}
    try:
        for statement in statements.splitlines():
            try:
                exec(statement)
            except UserError as error:
                print(error)
    finally:
        node.terminate()
        node.wait()
        cluster.shutdown()
"""


@pytest.mark.ray
@pytest.mark.timeout(400)
def test_a_node_without_the_project_is_named_and_gets_no_worker_if_another_suffices(tmp_path: Path) -> None:
    if sys.platform != "linux" or subprocess.run([*_NAMESPACE, "true"], check=False).returncode:
        pytest.skip("no permission to create a mount namespace")
    write_tiny_set(tmp_path)
    code = ROOT / "pipeline"
    training = 'run_training(job(Path(root), recipe("baseline")), TrainSettings(workers=2, gpu="no"))'
    task = 'run_on_a_node("evaluate", ("tiny", "baseline", "0"), 2)'
    absent = {
        training: f"{tmp_path}/data/shards/tiny",
        task: f"{code}/__init__.py",
        "embedding_workers(ExportSettings(workers=2), 1).__enter__()": f"{code}/__init__.py",
    }
    add = "cluster.add_node(num_cpus=2, object_store_memory=store)"
    statements = [*absent, add, training, f"print('status', {task})"]
    with TemporaryDirectory(prefix="us-", dir="/tmp") as temporary:
        process = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(_STAGE), "\n".join(statements), tmp_path, tmp_path, code],
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(ROOT), "RAY_TMPDIR": temporary},
            capture_output=True,
            text=True,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    messages = [line for line in process.stdout.splitlines() if line.startswith("Node ")]
    assert len(messages) == len(absent), process.stdout + process.stderr
    for message, path in zip(messages, absent.values(), strict=True):
        expected = f"Node {socket.gethostname()} of the cluster does not have {path}, which"
        assert message.startswith(expected)
    assert process.stdout.count("same path") == len(absent)
    assert process.stderr.count(f"warning: Node {socket.gethostname()} of the cluster does not have ") == 2
    assert list(tmp_path.glob("data/models/tiny/*/*/weights.safetensors")), process.stderr
    assert process.stdout.endswith("status 1\n"), "no embeddings"
