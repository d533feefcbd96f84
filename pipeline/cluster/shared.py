"""The storage that all nodes of a cluster share."""

import socket
from collections.abc import Mapping
from pathlib import Path

from unseen.runtime.errors import UserError
from unseen.runtime.stage import PACKAGE

# The name of the node, and those of some paths that it lacks. It is sent as a value, because a lambda has no
# name to import it by, and it imports the standard library only.
_ABSENT = lambda paths: (  # noqa: E731
    __import__("socket").gethostname(),
    [path for path in paths if not __import__("os").path.exists(path)],
)
_SECONDS = 60.0  # in which a node answers; the workers of a node that does not answer check it, too


def require_shared(path: Path) -> None:
    """Raises UserError in a worker whose node lacks `path`, which exists on the node of the stage."""
    if not path.exists():
        raise _lacks(socket.gethostname(), str(path))


def require_shared_on_nodes(bundle: Mapping[str, float], *paths: Path | None) -> None:
    """Raises UserError if a node of the cluster that could have a worker with the resources of `bundle` lacks
    one of `paths` or the code of the project. None is omitted.

    A node without the shared storage cannot import this code: each node runs `_ABSENT`.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    required = [str(path) for path in (*paths, PACKAGE / "__init__.py") if path is not None]
    probe = ray.remote(num_cpus=0, max_retries=0)(_ABSENT)
    answers = [
        probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            required
        )
        for node in ray.nodes()
        if node["Alive"] and all(node["Resources"].get(kind, 0) >= count for kind, count in bundle.items())
    ]
    answered, _ = ray.wait(answers, num_returns=len(answers), timeout=_SECONDS) if answers else ([], [])
    for answer in answered:
        try:
            node, absent = ray.get(answer)
        except RayError:  # the node left
            continue
        if absent:
            raise _lacks(node, absent[0])


def _lacks(node: str, path: str) -> UserError:
    return UserError(
        f"Node {node} of the cluster does not have {path}, which exists on the node that started the stage.",
        "Put the project on storage that all nodes mount at the same path, and run the stage there.",
    )
