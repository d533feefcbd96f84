"""Pictures of the page."""

import cv2
import numpy as np
import pytest

from unseen.data.decode import decode
from unseen.report.pictures import jpeg


@pytest.mark.parametrize(
    ("height", "width", "sides"),
    [(40, 80, (20, 40)), (80, 40, (40, 20)), (30, 20, (30, 20)), (200, 1, (40, 1))],
)
def test_the_longer_side_has_at_most_the_size(height: int, width: int, sides: tuple[int, int]) -> None:
    encoded = cv2.imencode(".png", np.full((height, width, 3), 90, np.uint8))[1]
    assert decode(np.frombuffer(jpeg(encoded, 40), np.uint8)).shape == (*sides, 3)
