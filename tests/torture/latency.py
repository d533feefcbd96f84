"""The seconds of /health of a service, and those of a control: `python -m tests.torture.latency PORT`.

The control is a server of asyncio in a process of its own, which answers each request with a constant. A
second process asks both in turn every INTERVAL seconds, each on one connection, until its input ends. Both
wait for the processor in the same way: the ratio of their percentiles belongs to the service.
"""

import asyncio
import http.client
import json
import os
import select
import signal
import socket
import sys
import time

INTERVAL = 0.01  # seconds
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readline() not in (b"\r\n", b""):
        pass
    while not reader.at_eof():
        writer.write(_ANSWER)
        await writer.drain()
        while await reader.readline() not in (b"\r\n", b""):
            pass


async def _serve(listener: socket.socket) -> None:
    async with await asyncio.start_server(_answer, sock=listener) as server:
        await server.serve_forever()


def _seconds(connection: http.client.HTTPConnection) -> float:
    start = time.perf_counter()
    connection.request("GET", "/health")
    connection.getresponse().read()
    return time.perf_counter() - start


def main(port: int) -> None:
    """Prints a line when it has begun, then the seconds of each answer: [of the service, of the control]."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        control = os.fork()
        if control == 0:
            asyncio.run(_serve(listener))
        ports = port, listener.getsockname()[1]
    try:
        connections = [http.client.HTTPConnection("127.0.0.1", each, timeout=60) for each in ports]
        seconds: list[list[float]] = [[], []]
        print("begun", flush=True)
        while not select.select([sys.stdin], [], [], INTERVAL)[0]:
            for connection, measured in zip(connections, seconds, strict=True):
                measured.append(_seconds(connection))
        print(json.dumps(seconds))
    finally:
        os.kill(control, signal.SIGKILL)
        os.waitpid(control, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
