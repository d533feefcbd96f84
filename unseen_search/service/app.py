"""The HTTP interface of a catalog, and the page that uses it.

GET  /                 the page: drop a photo, see its matches
POST /find?k=10        the body is a photo, or a form with photos; the answer contains products and matches
POST /regions/{catalog}/{row}  the body is the photo: which regions cause its similarity to a match
GET  /photos/{catalog}/{row}   a picture of the answer of this catalog as a small JPEG
GET  /health           whether the catalog can be searched
GET  /metrics          counts and durations, for Prometheus
GET  /openapi.json     the description of this interface

A body that is too large, too slow or no photo is refused, and the service continues. Its pixels are counted
before they are decoded. A service without a token answers no page of another site. A row belongs to one
catalog, whose fingerprint each answer contains: an address of an earlier catalog gives an error, never
another picture. A catalog that is built again is loaded at the next request; the earlier one answers until
then, and afterwards if the new one cannot be loaded. HEAD is answered as GET, and OPTIONS by the methods of a
path.
"""

import asyncio
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as Count
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from unseen.data.heif import readable
from unseen.report.pictures import jpeg
from unseen.runtime.errors import UserError
from unseen.runtime.names import say
from unseen.runtime.version import __version__
from unseen_search.service.current import Current, State
from unseen_search.service.photo_size import size_of
from unseen_search.service.requests import Heads, photos_of, require_known_parameters
from unseen_search.service.settings import ServiceSettings

T = TypeVar("T")
_CONTENT_POLICY = (
    "default-src 'none'; img-src 'self' blob: data:; connect-src 'self'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)
THUMBNAIL = 220  # pixels of the longer side
_REFUSAL = 0.25  # seconds: clients that try again at once would take all time of the event loop
_PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")


class FoundProduct(BaseModel):
    """A label that the photo may show."""

    label: str
    score: float  # by the rule of the catalog; with margin that over the best other label
    votes: int  # number of the matches with this label


class FoundPicture(BaseModel):
    """A picture of the catalog that is near the photo."""

    row: int
    path: str
    similarity: float
    label: str | None


class Found(BaseModel):
    """The answer to one photo."""

    unknown: bool | None  # whether no product reaches the threshold; null without a threshold
    rule: str  # of the scores of products
    threshold: float | None  # score of a product that is an answer
    statement: str | None  # on the threshold, with what limits it, as `unseen find` prints it
    products: list[FoundProduct]  # by their score; candidates of an unknown photo
    matches: list[FoundPicture]  # nearest first; candidates of an unknown photo
    catalog: str  # fingerprint of the catalog that answered
    seconds: float  # of embedding and search


class RegionMap(BaseModel):
    """A map over one picture: rows of h x w cells."""

    map: list[list[float]]
    box: tuple[float, float, float, float]  # left, top, right, bottom of the map as shares of the picture


class Cause(BaseModel):
    """Which regions of a photo and a match cause their similarity (unseen_search/catalog/regions.py).

    contribution: the cells of each map sum to the similarity. attention: the share of each cell in the
    attention of the class token, which does not depend on the other picture. null: the form of the network
    allows neither.
    """

    kind: Literal["contribution", "attention"] | None
    similarity: float
    photo: RegionMap | None
    match: RegionMap | None


class Health(BaseModel):
    """The state of the service."""

    status: str
    pictures: int
    catalog: str
    model: str
    threshold: str | None  # the statement on its rates, as `unseen find` prints it


class Refusal(BaseModel):
    """Why a request has no answer."""

    detail: str


class _Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Count(
            "unseen_requests", "Requests by path and status", ["path", "status"], registry=self.registry
        )
        self.unknown = Count("unseen_unknown", "Photos without a match", registry=self.registry)
        self.seconds = Histogram("unseen_find_seconds", "Embedding and search", registry=self.registry)
        self.pictures = Gauge("unseen_catalog_pictures", "Pictures of the catalog", registry=self.registry)


def create_app(directory: Path, settings: ServiceSettings) -> FastAPI:
    """The application for the catalog in `directory`.

    Raises UserError if the catalog or its model cannot be read, or if the threshold cannot be calibrated.
    """
    current, metrics = Current(directory, settings), _Metrics()
    places = asyncio.Semaphore(settings.concurrent)
    most = settings.concurrent + settings.waiting
    photos: Counter[str] = Counter()  # requests with a photo, each of which may hold its bytes, by address

    # The pages of FastAPI that show the interface would load scripts from another host.
    app = FastAPI(
        title="unseen",
        summary="Search for photos in a catalog",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the address of a redirect is the header Host of the client
        generate_unique_id_function=lambda route: route.name,  # the name of a function of generated clients
        responses=_refusals(401, 403, 422),
    )
    token = [] if settings.token is None else [Depends(_token_check(settings.token))]

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
        reasons = [f"{each['loc'][-1]}: {each['msg']}" for each in error.errors()]
        return JSONResponse(Refusal(detail="; ".join(reasons)).model_dump(), 422)

    async def admitted(request: Request) -> AsyncIterator[None]:
        """Only the requests above the limit of all addresses, or of one, are refused."""
        address = request.client.host if request.client else ""
        if photos.total() >= most or photos[address] >= most * settings.client_share:
            await asyncio.sleep(_REFUSAL)
            raise _busy()
        photos[address] += 1
        try:
            yield
        finally:
            photos[address] -= 1
            if not photos[address]:
                del photos[address]

    with_photo = [*token, Depends(require_known_parameters), Depends(admitted)]
    of_photo = _refusals(400, 408, 413, 415, 503)

    @app.middleware("http")
    async def count(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        refusal = None if settings.token else _of_another_site(request)
        response = await call(request) if refusal is None else refusal
        if response.status_code == 405:
            methods = response.headers["allow"].replace("GET", "GET, HEAD") + ", OPTIONS"
            if request.method == "OPTIONS":
                response = Response(status_code=204)
            response.headers["Allow"] = methods
        route = request.scope.get("route")
        path = getattr(route, "path", "other")  # not the path of the request: their number is not bounded
        metrics.requests.labels(path, response.status_code).inc()
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Content-Security-Policy"] = _CONTENT_POLICY
        return response

    app.add_middleware(Heads)

    async def in_turn(work: Callable[[], T]) -> T:
        """The result of `work` in a thread, when a place for a photo is free."""
        try:
            await asyncio.wait_for(places.acquire(), settings.wait)
        except TimeoutError:
            raise _busy() from None
        try:
            return await run_in_threadpool(work)
        except UserError as error:
            raise HTTPException(422, error.what) from None
        finally:
            places.release()

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> str:
        return _PAGE

    @app.post("/find", dependencies=with_photo, openapi_extra=_PHOTOS, responses=of_photo)
    async def find(request: Request, k: Annotated[int, Query(ge=1, le=100)] = 10) -> Found | list[Found]:
        """The k nearest pictures of the photo in the body: JPEG, PNG, WebP, AVIF, HEIC, TIFF, BMP or GIF. A
        form with several photos has a list of answers."""
        answers: list[Found] = []
        given = await photos_of(request, settings)
        for photo in given:
            try:
                answer = await in_turn(partial(_find, current, photo, settings, k))
            except HTTPException as error:
                if len(given) > 1:
                    error.detail = f"Photo {len(answers) + 1} of {len(given)}: {error.detail}"
                raise
            metrics.seconds.observe(answer.seconds)
            if answer.unknown:
                metrics.unknown.inc()
                if settings.unknown_log is not None:
                    await run_in_threadpool(_log_unknown, settings.unknown_log, photo, answer)
            answers.append(answer)
        return answers[0] if len(answers) == 1 else answers

    @app.post(
        "/regions/{catalog}/{row}",
        dependencies=with_photo,
        openapi_extra=_PHOTO,
        responses=of_photo | _refusals(404, 410),
    )
    async def regions(request: Request, catalog: str, row: int) -> Cause:
        """Which regions of the photo in the body, and of a picture of its answer, cause their similarity.
        `catalog` is the fingerprint in the answer. 410 if another catalog has replaced it."""
        photo, *others = await photos_of(request, settings)
        if others:
            raise HTTPException(422, "There are several photos, expected one.")
        return await in_turn(lambda: _regions(current.get(), _checked(photo, settings), catalog, row))

    @app.get(
        "/photos/{catalog}/{row}",
        dependencies=token,
        response_class=Response,
        responses=_refusals(404, 410),
    )
    def picture(catalog: str, row: int) -> Response:
        """A picture of an answer as a JPEG with a longer side of 220 pixels. `catalog` is the fingerprint in
        the answer. 410 if another catalog has replaced it."""
        content = _stored_photo(current.get(), catalog, row)
        try:
            small = jpeg(np.frombuffer(readable(content), np.uint8), THUMBNAIL)
        except ValueError:
            raise HTTPException(404, "The file is damaged.") from None
        return Response(small, media_type="image/jpeg", headers={"Cache-Control": "max-age=3600"})

    @app.get("/health")
    def health() -> Health:
        state = current.get()
        return Health(
            status="ok",
            pictures=len(state.catalog),
            catalog=state.fingerprint,
            model=str(state.catalog.about["model"]),
            threshold=None if state.threshold is None else state.threshold.sentence(),
        )

    @app.get("/metrics", response_class=Response, dependencies=token)
    def numbers() -> Response:
        metrics.pictures.set(len(current.get().catalog))
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_FORM = {
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "properties": {"photo": {"type": "array", "items": {"type": "string", "format": "binary"}}},
        }
    }
}
# of /regions, which also reads a form: a generator fails at two forms of a body without a parameter beside it
_PHOTO = {"requestBody": {"required": True, "content": _BYTES}}
_PHOTOS = {"requestBody": {"required": True, "content": _BYTES | _FORM}}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers with these statuses, for the description of the interface."""
    return {status: {"model": Refusal} for status in statuses}


def _token_check(token: str) -> Callable[..., Awaitable[None]]:
    """A dependency that refuses a request without the token in `Authorization: Bearer TOKEN`."""
    bearer = HTTPBearer(auto_error=False)

    async def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
        text = "" if given is None else given.credentials
        if not secrets.compare_digest(text.encode(), token.encode()):
            raise HTTPException(401, "The token is missing or wrong.", {"WWW-Authenticate": "Bearer"})

    return check


def _busy() -> HTTPException:
    return HTTPException(503, "The service is busy. Try again.", {"Retry-After": "1"})


def _of_another_site(request: Request) -> Response | None:
    """The refusal of a request that a web page of another site sent to a service without a token: by a name
    that its owner lets point to this machine (header Host), or across sites (header Origin)."""
    host = request.headers.get("host", "")
    name = urlsplit(f"//{host}").hostname or ""
    served, _ = request.scope["server"] or ("localhost", None)  # None: no address, such as a local socket
    origin = request.headers.get("origin", f"http://{host}")
    if name not in ("localhost", "127.0.0.1", "::1", served) or urlsplit(origin).netloc != host:
        return JSONResponse({"detail": "A service without a token answers only its own page."}, 403)
    return None


def _checked(photo: bytes, settings: ServiceSettings) -> bytes:
    """The photo, refused if it is not a picture or has too many pixels."""
    try:
        width, height = size_of(photo)
    except ValueError as error:
        raise HTTPException(
            422, f"a picture of {len(photo):,} bytes cannot be read as a picture: {error}."
        ) from None
    if width * height > settings.largest_pixels:
        raise HTTPException(
            413, f"The photo has {width} x {height} pixels, the limit is {settings.largest_pixels:,} pixels."
        )
    return photo


def _stored_photo(state: State, fingerprint: str, row: int) -> bytes:
    """The file of a row of the catalog with this fingerprint."""
    catalog = state.catalog
    if fingerprint != state.fingerprint:
        raise HTTPException(410, "Another catalog has replaced that of the answer. Search again.")
    if not 0 <= row < len(catalog):
        raise HTTPException(404, f"The catalog has pictures 0 to {len(catalog) - 1}.")
    try:
        return catalog.picture(row)
    except OSError:
        raise HTTPException(404, f"{catalog.paths[row]} is missing.") from None
    except ValueError as error:
        raise HTTPException(410, f"{error}.") from None


def _find(current: Current, photo: bytes, settings: ServiceSettings, k: int) -> Found:
    checked, state = _checked(photo, settings), current.get()
    start = time.perf_counter()
    (answer,) = state.catalog.identify([checked], k, state.threshold)
    return Found(
        unknown=answer.unknown,
        rule=state.catalog.rule if state.threshold is None else state.threshold.rule,
        threshold=None if state.threshold is None else state.threshold.score,
        statement=None if state.threshold is None else state.threshold.sentence(),
        products=[FoundProduct(**product._asdict()) for product in answer.products],
        matches=[
            FoundPicture(row=state.catalog.rows[match.path], **match._asdict()) for match in answer.matches
        ],
        catalog=state.fingerprint,
        seconds=time.perf_counter() - start,
    )


def _regions(state: State, photo: bytes, fingerprint: str, row: int) -> Cause:
    explanation = state.explainer.explain(photo, _stored_photo(state, fingerprint, row))
    of_photo, of_match = (
        None if regions is None else RegionMap(map=regions.map.tolist(), box=regions.box)
        for regions in (explanation.first, explanation.second)
    )
    return Cause(kind=explanation.kind, similarity=explanation.similarity, photo=of_photo, match=of_match)


def _log_unknown(path: Path, photo: bytes, answer: Found) -> None:
    """Appends one JSON line: time, sha256 of the photo and its nearest picture."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": hashlib.sha256(photo).hexdigest(),
        "nearest": answer.matches[0].model_dump() if answer.matches else None,
    }
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    except OSError as error:
        say(f"{path} cannot be written: {error.strerror}")
