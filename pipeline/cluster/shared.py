"""The storage that all nodes of a cluster share."""

import socket
from pathlib import Path

from unseen.cluster.connection import fitting
from unseen.runtime.errors import UserError
from unseen.runtime.names import say
from unseen.runtime.stage import PACKAGE

# The name of the node, and those of some paths that it lacks. It is sent as a value, because a lambda has no
# name to import it by, and it imports the standard library only.
_ABSENT = lambda paths: (  # noqa: E731
    __import__("socket").gethostname(),
    [path for path in paths if not __import__("os").path.exists(path)],
)
_NODE_ID = "ray.io/node-id"  # a label that Ray gives each node
_SECONDS = 60.0  # in which a node answers; the workers of a node that does not answer check it, too


def require_shared(path: Path) -> None:
    """Raises UserError in a worker whose node lacks `path`, which exists on the node of the stage."""
    if not path.exists():
        raise _lacks(socket.gethostname(), str(path))


def shared_nodes(bundle: dict[str, float], workers: int, *paths: Path | None) -> dict[str, str]:
    """Ray's label selector of the nodes that have `paths` and the code of the project, for `workers`
    processes with the resources of `bundle`; empty if all nodes have them. A path of None is omitted.

    Prints a line for each node that lacks one. Raises UserError if the other nodes are too small.
    A node without the shared storage cannot import this code: each node runs `_ABSENT`.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    required = [str(path) for path in (*paths, PACKAGE / "__init__.py") if path is not None]
    probe = ray.remote(num_cpus=0, max_retries=0)(_ABSENT)
    nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    answers = {
        probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            required
        ): node
        for node, resources in nodes.items()
        if fitting([resources], bundle)
    }
    answered, _ = ray.wait([*answers], num_returns=len(answers), timeout=_SECONDS) if answers else ([], [])
    lacking: dict[str, UserError] = {}
    for answer in answered:
        try:
            name, absent = ray.get(answer)
        except RayError:  # the node left
            continue
        if absent:
            lacking[answers[answer]] = _lacks(name, absent[0])
    suitable = [resources for node, resources in nodes.items() if node not in lacking]
    for error in lacking.values():
        if fitting(suitable, bundle) < workers:
            raise error
        say(f"warning: {error.what}\n  It gets no worker: the other nodes suffice.")
    return {_NODE_ID: f"!in({','.join(lacking)})"} if lacking else {}


def _lacks(node: str, path: str) -> UserError:
    return UserError(
        f"Node {node} of the cluster does not have {path}, which exists on the node that started the stage.",
        "Put the project on storage that all nodes mount at the same path, and run the stage there.",
    )
