"""Memory that one thread reuses for all pictures.

The C library returns large blocks to the system immediately, and the first access to the pages of a new block
takes a third of the time of decoding a photograph.
"""

import numpy as np
from jaxtyping import UInt8


class Scratch:
    """uint8 arrays by purpose, which overwrite the previous array of the same purpose. Not thread-safe."""

    def __init__(self) -> None:
        self._memory: dict[str, UInt8[np.ndarray, size]] = {}

    def take(self, purpose: str, height: int, width: int) -> UInt8[np.ndarray, "H W 3"]:
        """An array with arbitrary content."""
        size = height * width * 3
        memory = self._memory.get(purpose)
        if memory is None or memory.size < size:
            memory = self._memory[purpose] = np.empty(size, np.uint8)
        return memory[:size].reshape(height, width, 3)
