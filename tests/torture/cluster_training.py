"""A small training on Ray, for the campaign of clusters.py: `python -m tests.torture.cluster_training ROOT`.

Without --nodes it has two workers on a private cluster. With --nodes the cluster is a head without CPUs and
raylets of one CPU each on this machine. The lines `leave` and `join` on standard input end the oldest raylet
without notice, and start one. With --elastic the number of workers is 1, 2 or 3, and the training is that of
resized_training.py.
"""

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pipeline.cluster import train_workers
from pipeline.cluster.training import run_training
from pipeline.config import TrainSettings
from pipeline.training.job import Job
from tests.torture import resized_training
from tests.training.jobs import job, recipe

STORE = 80 * 2**20  # bytes of shared memory of a node
# A raylet that was killed refuses connections: three refusals in 1.5 s instead of five in 15 s. Ray Train
# requests workers for the dead node before that, and would wait 60 s for them.
NODES = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "5",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # a process of each start, 2 s of CPU
}


def small_job(root: Path) -> Job:
    return job(root, recipe("baseline", training={"iterations": 40, "validate_every": 20}))


def _train(root: Path, settings: TrainSettings, codes: list[int]) -> None:
    is_elastic = settings.fewest_workers < settings.most_workers
    try:
        if is_elastic:
            run_training(resized_training.long_job(root), settings, resized_training.train)
        else:
            run_training(small_job(root), settings)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        codes.append(1)
    else:
        codes.append(0)


def _with_nodes(root: Path, nodes: int, settings: TrainSettings) -> int:
    os.environ.update(NODES)  # the GCS and the controller of the training inherit it
    from ray.cluster_utils import Cluster

    head: dict[str, Any] = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    raylets = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(nodes)]
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    commands: list[str] = []
    threading.Thread(target=lambda: commands.extend(map(str.strip, sys.stdin)), daemon=True).start()
    codes: list[int] = []
    training = threading.Thread(target=_train, args=(root, settings, codes))
    training.start()
    while training.is_alive():  # Ray starts nodes from the main thread only
        training.join(0.2)
        command = commands.pop(0) if commands else ""
        if command == "leave":
            cluster.remove_node(raylets.pop(0), allow_graceful=False)
        elif command == "join":
            raylets.append(cluster.add_node(num_cpus=1, object_store_memory=STORE))
    cluster.shutdown()
    return codes[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--elastic", action="store_true")
    options = parser.parse_args()
    train_workers.RESIZE_SECONDS = 2.0
    settings = TrainSettings(workers=(1, 3) if options.elastic else 2, gpu="no")
    if options.nodes:
        return _with_nodes(options.root, options.nodes, settings)
    codes: list[int] = []
    _train(options.root, settings, codes)
    return codes[0]


if __name__ == "__main__":
    sys.exit(main())
