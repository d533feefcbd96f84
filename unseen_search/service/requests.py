"""What clients send: bodies, forms and methods."""

import asyncio
import re

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from unseen_search.service.settings import ServiceSettings

_FORMS = "Send the bytes of the photo (curl --data-binary @new.jpg) or a form (curl -F photo=@new.jpg)."
_PHOTOS, _HEAD = 100, 10_000  # photos of a form, and bytes before each
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^;,\s]{1,70}))', re.IGNORECASE)  # RFC 2046
_FILE = re.compile(rb"^content-disposition:.*;\s*filename\*?=", re.IGNORECASE | re.MULTILINE)


class Heads:
    """Answers HEAD as GET. The server omits the content."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


async def require_known_parameters(request: Request) -> None:
    """Refuses a parameter in the address that its path does not have."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    if unknown := sorted(set(request.query_params) - known):
        names = ", ".join(sorted(known)) or "none"
        raise HTTPException(422, f"unknown parameters: {', '.join(unknown)}; the parameters are: {names}.")


async def photos_of(request: Request, settings: ServiceSettings) -> list[bytes]:
    """The photos in the body, which is refused as soon as it is too large or too slow: the body itself, or
    each file of a form (multipart/form-data, RFC 7578)."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HTTPException(415, f"The body is compressed. {_FORMS}")
    limit = settings.largest_photo
    too_large = HTTPException(413, f"A photo has at most {limit:,} bytes.")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    content = bytearray()
    try:
        async with asyncio.timeout(settings.upload_seconds):
            async for piece in request.stream():
                content += piece
                if len(content) > limit:
                    raise too_large
    except ClientDisconnect:  # nobody reads the answer; without it the server would log a traceback
        raise HTTPException(400, "The connection ended before the photo.") from None
    except TimeoutError:
        raise HTTPException(408, f"The photo did not arrive in {settings.upload_seconds:g} s.") from None
    if not content:
        raise HTTPException(422, "The body is empty, expected the bytes of a photo.")
    kind = request.headers.get("content-type", "")
    if kind.lower().startswith("application/json"):
        raise HTTPException(415, f"The body is JSON. {_FORMS}")
    if kind.lower().startswith("application/x-www-form-urlencoded") and b"\0" not in content:
        raise HTTPException(415, f"The body is text, or curl -d removed bytes of the photo. {_FORMS}")
    if kind.lower().startswith("multipart/form-data"):
        return await run_in_threadpool(_files, content, kind)  # copies of 20 MB
    return [bytes(content)]


def _files(content: bytearray, kind: str) -> list[bytes]:
    """The files of a form."""
    match = _BOUNDARY.search(kind)
    if match is None:
        raise HTTPException(422, f"The form names no boundary. {_FORMS}")
    boundary = b"\r\n--" + (match[1] or match[2]).encode()
    parts = (b"\r\n" + content).split(boundary, _PHOTOS + 2)
    if len(parts) > _PHOTOS + 2:
        raise HTTPException(413, f"A form has at most {_PHOTOS} photos.")
    if len(parts) < 3 or not parts[-1].startswith(b"--"):
        raise HTTPException(422, f"The form is incomplete. {_FORMS}")
    files = []
    for part in parts[1:-1]:
        end = part.find(b"\r\n\r\n", 0, _HEAD + 4)  # without a search in 20 MB
        if end < 0 or end + 4 == len(part) or not _FILE.search(part, 0, end):
            raise HTTPException(422, "A part of the form is no photo; parameters belong into the address.")
        files.append(bytes(part[end + 4 :]))
    return files
