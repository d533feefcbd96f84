"""`unseen serve`: a catalog as a service on this machine."""

import os
import sys
from ipaddress import ip_address
from pathlib import Path

from unseen.runtime.errors import UserError
from unseen.runtime.names import say
from unseen_search.service.settings import ServiceSettings

TOKEN = "UNSEEN_TOKEN"  # environment variable; an argument would be visible to other users of the machine


def serve(catalog: Path, host: str, port: int, settings: ServiceSettings) -> None:
    """Serves `catalog` until SIGINT or SIGTERM. The token is read from UNSEEN_TOKEN.

    Raises UserError if the packages are not installed, if an address of other machines has no token, if the
    catalog cannot be read, and if the port is not free.
    """
    try:
        from unseen_search.service.app import create_app
        from unseen_search.service.server import server_of
    except ModuleNotFoundError as error:
        raise UserError(
            f"unseen serve needs the package {error.name}.", "Install it with `pip install 'unseen[serve]'`."
        ) from None
    settings = settings.model_copy(update={"token": os.environ.get(TOKEN) or None})
    if settings.token is None and not _is_loopback(host):
        raise UserError(
            f"Other machines can reach {host}, and no token is set.",
            f"Set {TOKEN} to a secret that requests must present, or use --host 127.0.0.1.",
        )
    server = server_of(create_app(catalog, settings), host, port)
    try:
        sockets = [server.config.bind_socket()]
    except SystemExit:
        raise UserError(
            f"{host}:{port} cannot be used: another program uses it, or this machine has no such address.",
            "Choose another --port or --host.",
        ) from None
    address, chosen = sockets[0].getsockname()[:2]
    say(f"http://{address}:{chosen} serves {catalog}; Ctrl-C ends it")
    sys.setswitchinterval(0.001)  # seconds that a thread with a photo delays the other requests
    server.run(sockets)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
