"""The settings of the service."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from unseen.data.decode import MAX_PIXELS
from unseen.runtime.settings import Strict
from unseen_search.catalog.thresholds import Asked


class ServiceSettings(Strict):
    """Limits and options of one service."""

    asked: Asked = Asked()
    token: Annotated[str, Field(min_length=1)] | None = None  # that requests must present; None: no token
    largest_photo: Annotated[int, Field(gt=0)] = 20 * 2**20  # bytes
    largest_pixels: Annotated[int, Field(gt=0, le=MAX_PIXELS)] = 64_000_000  # width x height of a photo
    upload_seconds: Annotated[float, Field(gt=0)] = 30.0  # for the body of one request
    concurrent: Annotated[int, Field(gt=0)] = 2  # photos that are embedded at the same time
    waiting: Annotated[int, Field(gt=0)] = (
        64  # requests with a photo besides; further ones are refused with 503
    )
    client_share: Annotated[float, Field(gt=0, le=1)] = 0.5  # of these requests, for one address
    wait: Annotated[float, Field(gt=0)] = 10.0  # seconds that a photo waits for its turn
    unknown_log: Path | None = None  # a file with one JSON line per unknown photo
