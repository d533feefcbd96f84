"""The server of the application: limits of connections that uvicorn does not have."""

import asyncio
import socket

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = (
    10.0  # from the opening of a connection, or the first byte of a request, to the end of its header
)
CONNECTIONS = 500  # open at once; a further one is closed, so that files stay available
OF_A_CLIENT = 250  # of these, from one address


class LimitedProtocol(H11Protocol):
    """Closes a connection whose request header is not complete after HEADER_SECONDS: it sends nothing,
    or one byte after the other. The application limits the time of a body."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio omits this for the sockets of uvicorn: an answer would wait 40 ms for a delayed ACK
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = self.client and self.client[0]
        clients = [getattr(other, "client", None) for other in self.connections]
        same = sum(client is not None and client[0] == address for client in clients)
        if len(self.connections) > CONNECTIONS or same > OF_A_CLIENT:
            transport.close()
        else:
            self._limit_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_header()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # which limits the time until the next request begins
        self._limit_header()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel()

    def _limit_header(self) -> None:
        """Starts the time when a header is expected, and ends it when it has arrived."""
        is_expected = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        if not is_expected:
            self._cancel()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def server_of(app: FastAPI, host: str, port: int) -> uvicorn.Server:
    """A server of `app`, which is not bound to its address yet."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host,
            port,
            http=LimitedProtocol,
            log_level="warning",
            server_header=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=10,
        )
    )
