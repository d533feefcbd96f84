"""Where ranks are counted."""

import faiss
import pytest
import torch

from unseen.evaluation.counted_gallery import NumpyGallery, tile_counter
from unseen.runtime.device.counted_gallery import TorchGallery


@pytest.mark.parametrize(
    ("of_faiss", "of_torch", "expected"),
    [(0, True, NumpyGallery), (2, True, TorchGallery), (1, False, NumpyGallery)],
)
def test_a_gpu_counts_where_faiss_and_torch_have_one(
    of_faiss: int, of_torch: bool, expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: of_faiss)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: of_torch)
    assert tile_counter() is expected
