"""Where ranks are counted."""

import faiss

from unseen.evaluation.counted_gallery import NumpyGallery, TileCounter


def tile_counter() -> TileCounter:
    """Counts ranks on the GPU if FAISS and torch have one, else on the CPU. The ranks are equal.

    FAISS is asked first: the Makefile installs its GPU build where there is a GPU, and its CPU build reports
    none. So torch, whose import takes seconds, is not imported where there is no GPU.
    """
    if faiss.get_num_gpus() == 0:
        return NumpyGallery
    from unseen.runtime.device.counted_gallery import TorchGallery, has_gpu

    return TorchGallery if has_gpu() else NumpyGallery
