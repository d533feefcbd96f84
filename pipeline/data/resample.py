"""The resizing of transforms.py in NumPy, for processes that do not import PyTorch.

out_i = (sum_j k_ij in_j + 2^(b-1)) >> b, clamped to 0 ... 255, along columns, then along rows. k are the
weights of the antialiased triangle (bilinear) or of Keys' cubic with a = -1/2 (bicubic), times 2^b and
rounded, with the largest b at which they fit into 16 bits. These are the integers of torch's kernel for
uint8, so the results are equal. A photo of 4032 x 3024 takes 0.5 s, torch 0.03 s.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float64, UInt8

_BITS = 22  # b at most
_Kernel = Callable[[Float64[np.ndarray, "k"]], Float64[np.ndarray, "k"]]


def _triangle(x: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "k"]:
    return np.maximum(0, 1 - x)


def _cubic(x: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "k"]:
    near, far = (1.5 * x - 2.5) * x * x + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


_KERNELS: dict[str, tuple[int, _Kernel]] = {"bilinear": (1, _triangle), "bicubic": (2, _cubic)}


def resampled(
    picture: UInt8[np.ndarray, "H W 3"], height: int, width: int, interpolation: str
) -> UInt8[np.ndarray, "h w 3"]:
    """The picture in another size. interpolation: bilinear or bicubic."""
    columns = _rows(picture.swapaxes(0, 1), width, interpolation)
    return _rows(columns.swapaxes(0, 1), height, interpolation)


def _rows(
    picture: UInt8[np.ndarray, "n m 3"], count: int, interpolation: str
) -> UInt8[np.ndarray, "count m 3"]:
    """Weighted sums of the rows of `picture`."""
    if len(picture) == count:
        return picture
    rows, windows = np.ascontiguousarray(picture), list(_windows(len(picture), count, interpolation))
    largest = max(weights.max() for _, weights in windows)
    bits = min(_BITS, math.ceil(math.log2((2**15 - 0.5) / largest)) - 1)
    out = np.empty((count, *rows.shape[1:]), np.uint8)
    for row, (start, weights) in zip(out, windows, strict=True):
        whole = np.trunc(weights * 2**bits + np.copysign(0.5, weights))
        window = rows[start : start + len(weights)].reshape(len(weights), -1)
        sums = whole @ window.astype(np.float64)  # integers below 2^53: exact in any order
        row[...] = np.clip(np.floor((sums + 2 ** (bits - 1)) / 2**bits), 0, 255).reshape(row.shape)
    return out


def _windows(before: int, after: int, interpolation: str) -> Iterator[tuple[int, Float64[np.ndarray, "k"]]]:
    """The first row and the weights of each sum."""
    support, kernel = _KERNELS[interpolation]
    scale = before / after
    stretch = max(scale, 1.0)
    for centre in scale * (np.arange(after) + 0.5):
        start = max(int(centre - support * stretch + 0.5), 0)
        stop = min(int(centre + support * stretch + 0.5), before)
        weights = kernel(np.abs((np.arange(start, stop) - centre + 0.5) / stretch))
        yield start, weights / weights.sum()
