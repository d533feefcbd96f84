"""The storage that all nodes of a cluster share."""

import socket
from pathlib import Path

from pipeline.runtime.errors import UserError


def require_shared(path: Path) -> None:
    """Raises UserError in a worker whose node lacks `path`, which exists on the node of the stage."""
    if not path.exists():
        raise UserError(
            f"Node {socket.gethostname()} of the cluster does not have {path}, which exists on the node that "
            "started the stage.",
            "Put the project on storage that all nodes mount at the same path, and run the stage there.",
        )
