"""`python -m unseen.cluster.run_cluster PROCESSES`: the Ray cluster of a run with parallel stages.

Prints one line of JSON: {"environment": variables for the stages, "cpus", "gpus"}. Without RAY_ADDRESS it
starts a private cluster for PROCESSES processes at a time, which ends when standard input ends, and with the
process that started this one. With RAY_ADDRESS it prints the resources of that cluster and exits, with an
error if no node has the project. It is a process of its own, so that the scheduler has no threads of Ray
when it starts processes.
"""

import argparse
import json
import os
import sys

from unseen.cluster.connection import RUN_CLUSTER, connection
from unseen.cluster.shared import shared_nodes
from unseen.runtime.stage import PARENT, ROOT, end_with_parent, report_errors, start_closing

_STORE = 80 * 2**20  # bytes of shared memory per process, as in the private cluster of one stage


def main() -> None:
    end_with_parent(int(os.environ.pop(PARENT)))
    parser = argparse.ArgumentParser()
    parser.add_argument("processes", type=int)
    processes = parser.parse_args().processes
    with report_errors(), connection(processes, object_store=_STORE * processes, prestart=False) as cluster:
        environment = {}
        if not cluster.private:
            shared_nodes({"CPU": 1.0}, 1, ROOT)
        if cluster.private:
            import ray

            variables = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
            environment = {name: os.environ[name] for name in variables if name in os.environ}
            environment[RUN_CLUSTER] = ray.get_runtime_context().gcs_address
        print(
            json.dumps({"environment": environment, "cpus": cluster.cpus, "gpus": cluster.gpus}), flush=True
        )
        if cluster.private:
            sys.stdin.read()
            start_closing()  # the end of the parent closes the input and sends SIGTERM


if __name__ == "__main__":
    main()
