"""Memory that one thread uses again for picture after picture.

The C library gives large blocks back to the system at once, and touching the pages of a new one costs 250 us for a 500 x 375 picture, where decoding
it costs 650.
"""

import numpy as np
from jaxtyping import UInt8


class Scratch:
    """uint8 arrays by purpose. What was taken before for the same purpose is overwritten; not for sharing between threads."""

    def __init__(self) -> None:
        self._memory: dict[str, UInt8[np.ndarray, size]] = {}

    def take(self, purpose: str, height: int, width: int) -> UInt8[np.ndarray, "H W 3"]:
        """An array of arbitrary content."""
        size = height * width * 3
        memory = self._memory.get(purpose)
        if memory is None or memory.size < size:
            memory = self._memory[purpose] = np.empty(size, np.uint8)
        return memory[:size].reshape(height, width, 3)
