"""Ingest accepts exactly the damaged pictures that decoding accepts, and refuses others with ValueError."""

from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.data.test_any_jpeg import MOST_PIXELS, damaged, decoded, header_of, octets
from unseen.data.decode import decode
from unseen.data.ingest.completeness import require_complete
from unseen.data.ingest.prepare import Prepared, pixels_of, prepare

pytestmark = pytest.mark.timeout(60)  # a hang is a failure


@pytest.mark.slow
@given(content=damaged(), resize=st.none() | st.integers(8, 64))
@settings(max_examples=300)
def test_ingest_prepares_what_decoding_accepts(content: bytes, resize: int | None) -> None:
    jpeg = header_of(content)
    assume(jpeg is None or jpeg.width * jpeg.height <= MOST_PIXELS)
    pixels = decoded(content)
    prepared: Prepared | None = None
    whole = False
    with suppress(ValueError):
        prepared = prepare(content, resize, 95)
    with suppress(ValueError):
        require_complete(octets(content))
        whole = True
    assert (prepared is not None) == whole == (pixels is not None)
    if prepared is not None and pixels is not None:
        stored = decode(octets(prepared.image))
        assert stored.shape == (prepared.height, prepared.width, 3)
        assert resize is not None or stored.shape == pixels.shape
        assert pixels_of(content) == pixels_of(pixels)
