"""A gallery whose products with queries are counted tile by tile on a GPU, or on another device of torch.

It has the interface of evaluation/counted_gallery.py, which defines products and counts. This module is
apart, because the evaluation imports no torch where FAISS has no GPU (evaluation/counted_gallery.py).

A tile is multiplied, all its products are located among the thresholds of their rows by binary search, and
the counts are read together. The host waits once for a tile without close products, and twice more otherwise,
for any number of thresholds. One tile at a time is on the device. Memory of the device:

    gallery     at most RESIDENT; the rows of a larger gallery are copied for each tile, at most UPLOADED
    tile        20 bytes for each of `cells` products, 320 MiB
    blocks      queries and thresholds of each block that is counted at a time: 8 MiB of queries with 512
                dimensions, 8 bytes for each relevant row
"""

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from unseen.runtime.device.transfer import DeviceToHost

RESIDENT = 2 << 30  # bytes of a gallery that remains on the device: 1,048,576 rows of 512 dimensions
UPLOADED = 64 << 20  # bytes of the gallery rows of a tile

# As evaluation/tile_count.py: counts or None; row, column, first threshold and number of thresholds of each
# close product.
_Counted = tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_NONE = np.empty((4, 0), np.int64)
_UNDECIDED: _Counted = (None, *_NONE)


def has_gpu() -> bool:
    """Whether torch has a GPU."""
    return torch.cuda.is_available()


class TorchGallery:
    """Products by torch in float32, without TF32 and bfloat16 whatever the settings of torch are."""

    queries = 4096
    cells = 1 << 24  # enough work for the launch of each kernel
    library = "torch"
    remedy = (
        "The GPU computes in a lower precision. Unset NVIDIA_TF32_OVERRIDE, or set CUDA_VISIBLE_DEVICES to "
        "an empty value, so that the CPU counts."
    )

    def __init__(self, rows: Float32[np.ndarray, "N D"], device: str = "cuda") -> None:
        self.device = torch.device(device)
        self.one_tile = threading.Lock()
        self.widest = max(1, UPLOADED // (4 * rows.shape[1]))  # gallery rows of a tile
        self._rows = torch.from_numpy(rows)
        if rows.nbytes <= RESIDENT:
            self._rows = self._rows.to(self.device)

    def rows(self, columns: slice) -> Float32[Tensor, "w D"]:
        """These rows on the device."""
        return self._rows[columns].to(self.device)

    def block(self, queries: Float32[np.ndarray, "b D"], part: int) -> "TorchBlock":
        return TorchBlock(self, queries, part)


class TorchBlock:
    """The products of the queries of a block with a gallery."""

    def __init__(self, gallery: TorchGallery, queries: Float32[np.ndarray, "b D"], part: int) -> None:
        self._gallery, self._part = gallery, part
        self._queries = torch.from_numpy(queries).to(gallery.device)

    def compare_with(
        self,
        low: Float32[np.ndarray, "b R"],
        high: Float32[np.ndarray, "b R"],
        relevant: Int64[np.ndarray, "b"],
    ) -> None:
        device = self._gallery.device
        # Ascending thresholds, then the padding: negative positions are those at the end of a row.
        level = relevant[:, None] - 1 - np.arange(low.shape[1])
        self._low, self._high = (
            torch.from_numpy(np.take_along_axis(bounds, level, axis=1)).to(device) for bounds in (low, high)
        )
        self._relevant = torch.from_numpy(relevant.astype(np.int32)[:, None]).to(device)

    def count(
        self, columns: slice, members: Int64[np.ndarray, "P"], checked: int, most: int
    ) -> tuple[Float32[np.ndarray, "c"], _Counted]:
        with self._gallery.one_tile:
            masked = torch.from_numpy(members).to(self._gallery.device)
            with _float32_products():
                tile = self._products(self._gallery.rows(columns))
            sample = tile.view(-1)[masked[:checked]]
            tile.view(-1).index_fill_(0, masked, -torch.inf)
            passed = torch.searchsorted(self._high, tile, out_int32=True)  # thresholds below the product
            near = torch.searchsorted(self._low, tile, right=True, out_int32=True)
            del tile
            near -= passed  # thresholds that are close to the product
            first = passed.neg_().add_(self._relevant)  # the first threshold below the product
            counts = torch.zeros(len(near), self._low.shape[1] + 1, dtype=torch.int32, device=near.device)
            counts.scatter_add_(1, first.long(), counts.new_ones(()).expand_as(near))
            results = (sample, counts[:, :-1].cumsum(1), near.sum(dtype=torch.int64))
            products, of_thresholds, pairs = (DeviceToHost(values) for values in results)
            number = int(pairs.wait())
            if number > most:
                return products.wait().numpy(), _UNDECIDED
            close = _NONE
            if number:
                row, column = near.nonzero(as_tuple=True)
                length = near[row, column].long()
                each = torch.stack([row, column, first[row, column] - length, length])
                close = DeviceToHost(each).wait().numpy()
        return products.wait().numpy(), (of_thresholds.wait().numpy(), *close)

    def _products(self, rows: Float32[Tensor, "w D"]) -> Float32[Tensor, "b w"]:
        tile = self._queries[:, : self._part] @ rows[:, : self._part].T
        for start in range(self._part, rows.shape[1], self._part):
            part = slice(start, start + self._part)
            tile += self._queries[:, part] @ rows[:, part].T
        return tile


@contextlib.contextmanager
def _float32_products() -> Iterator[None]:
    """Products of float32 in float32, whatever the settings of torch are."""
    backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    precisions = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, precisions, strict=True):
            backend.fp32_precision = precision
