"""A small training on Ray, for the campaigns of clusters.py and resizes.py:
`python -m tests.torture.cluster_training ROOT`.

Its steps wait for the campaign (gated_training.py). Without --nodes its workers are on a private cluster,
with --run-cluster on that of a parallel run. With --nodes the cluster is a head without CPUs and raylets of
one CPU each on this machine. The lines `leave` and `join` on standard input end the oldest raylet with a
worker without notice, and start one; `drain` starts one and announces that the oldest with a worker is lost,
which it is NOTICE seconds later. With --elastic the number of workers is 1, 2 or 3.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.torture.gated_training import gated_job, train
from unseen.cluster import train_workers
from unseen.cluster.launcher import RunCluster
from unseen.cluster.training import run_training
from unseen.config.stages import TrainSettings
from unseen.training.job import Job

SEGMENTS = 4  # of the training, without --segments
WORKER = "RayTrainWorker"  # in the command line of a training worker
STORE = 80 * 2**20  # bytes of shared memory of a node
NOTICE = 10.0  # seconds
# A raylet that was killed refuses connections: three refusals in 1.5 s instead of five in 15 s. Ray Train
# requests workers for the dead node before that, and would wait 60 s for them.
NODES = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "5",
}


def _train(job: Job, settings: TrainSettings) -> int:
    """The exit status."""
    try:
        run_training(job, settings, train)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def _on_nodes(job: Job, nodes: int, settings: TrainSettings, drains: bool) -> int:
    watches = {"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": str(int(drains))}  # a process of each start, 2 s of CPU
    os.environ.update(NODES | watches)  # the GCS and the controller of the training inherit it
    from ray.cluster_utils import Cluster

    head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    raylets = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(nodes)]
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    commands: list[str] = []
    drained: list[tuple[float, Any]] = []  # times at which they are lost, and nodes
    threading.Thread(target=lambda: commands.extend(map(str.strip, sys.stdin)), daemon=True).start()
    codes: list[int] = []
    training = threading.Thread(target=lambda: codes.append(_train(job, settings)), daemon=True)
    training.start()
    while training.is_alive():  # Ray starts nodes from the main thread only
        training.join(0.2)
        command = commands.pop(0) if commands else ""
        if command in ("join", "drain"):
            raylets.append(cluster.add_node(num_cpus=1, object_store_memory=STORE))
        if command in ("leave", "drain"):
            with_worker = _nodes_with_worker()
            leaving = next((node for node in raylets if node.node_id in with_worker), raylets[0])
            raylets.remove(leaving)
            if command == "drain":
                _announce(leaving)
            drained.append((time.monotonic() + (NOTICE if command == "drain" else 0.0), leaving))
        while drained and time.monotonic() >= drained[0][0]:
            cluster.remove_node(drained.pop(0)[1], allow_graceful=False)
    cluster.shutdown()
    return codes[0]


def _nodes_with_worker() -> set[str]:
    """The nodes on which Ray runs training workers; none when the training has disconnected."""
    import ray
    from ray._private.state import actors

    if not ray.is_initialized():
        return set()
    running = [actor for actor in actors().values() if actor["State"] == "ALIVE"]
    return {actor["Address"]["NodeID"] for actor in running if WORKER in actor["ActorClassName"]}


def _announce(node: Any) -> None:
    """Tells Ray that the node is lost in NOTICE seconds."""
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason

    deadline = int((time.time() + NOTICE) * 1000)
    reason = DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
    accepted, message = node.get_gcs_client().drain_node(node.node_id, reason, "preempted", deadline)
    assert accepted, message


def _on_run_cluster(root: Path, arguments: Sequence[str]) -> int:
    """The exit status of this program with `arguments` on the private cluster of a parallel run."""
    cluster = RunCluster(2, lambda stage: True, root / "cluster.log")
    try:
        while (variables := cluster.environment("train")) is None:
            time.sleep(0.02)
        command = [sys.executable, "-m", "tests.torture.cluster_training", str(root), *arguments]
        return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode
    finally:
        cluster.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--segments", type=int, default=SEGMENTS)
    parser.add_argument("--batch-norm", default="batch")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--run-cluster", action="store_true")
    parser.add_argument("--elastic", action="store_true")
    parser.add_argument("--drains", action="store_true", help="Ray watches for nodes that drain")
    options = parser.parse_args()
    train_workers.RESIZE_SECONDS = 2.0
    settings = TrainSettings(workers=(1, 3) if options.elastic else options.workers, gpu="no")
    if options.run_cluster:
        return _on_run_cluster(options.root, ["--workers", str(options.workers)])
    job = gated_job(options.root, options.segments, options.batch_norm)
    if options.nodes:
        return _on_nodes(job, options.nodes, settings, options.drains)
    return _train(job, settings)


if __name__ == "__main__":
    sys.exit(main())
