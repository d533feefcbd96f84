"""Indexes of galleries that are mapped into memory from a file, so that the memory contains the index alone.

The index is that of `index.build`, except that k-means learns from a sample of a larger gallery. The full
vectors of flat indexes and of refined codes are those of the file, which FAISS reads and does not copy.
"""

from typing import Any

import faiss
import numpy as np
from jaxtyping import Float32

from unseen.evaluation.index.index import Index, threads, vectors_at
from unseen.evaluation.index.kinds import CENTRES, default_lists, prepare, train
from unseen.evaluation.index.recall import Recall, recall_of_parts, sampled
from unseen.evaluation.settings import Cells, Flat, Hnsw, IvfPq, Setting

PER_LIST = 64  # rows of the sample for each list of an inverted file
SEED = 0  # of the sample
PART = 1 << 15  # rows of exact search at a time


def build_mapped(gallery: Float32[np.ndarray, "N D"], setting: Setting) -> Index:
    """The index of the rows of a contiguous array, with the ids 0 to N - 1. The array must not change.

    Raises UserError as `kinds.train` does, and ValueError for an index of codes only.
    """
    if isinstance(setting, IvfPq) and setting.refine is None:
        raise ValueError("an index of codes only needs the vectors in memory for each search")
    gallery = np.asarray(gallery)  # not np.memmap, which faiss.contrib.torch_utils refuses
    fixed, sample = setting, gallery
    if isinstance(setting, Cells):
        fixed = setting.model_copy(update={"lists": setting.lists or default_lists(len(gallery))})
        size = max(PER_LIST * (fixed.lists or 1), 256 * CENTRES)
        if size < len(gallery):
            chosen = np.random.default_rng(SEED).choice(len(gallery), size, replace=False)
            sample = gallery[np.sort(chosen)]
    with threads(1 if isinstance(setting, Flat) else setting.build_threads):
        engine = train(sample, fixed)
        del sample
        if isinstance(setting, Flat):
            _show(engine, gallery)
        elif isinstance(setting, IvfPq):
            engine.base_index.add(gallery)
            _show(faiss.downcast_index(engine.refine_index), gallery)
            engine.ntotal = len(gallery)
        else:
            engine.add(gallery)  # at once: FAISS allocates the memory of all rows, and does not enlarge it
    engine.referenced_objects = [gallery]  # FAISS's name for arrays that must live as long as an index
    prepare(engine, setting)
    ids = np.arange(len(gallery))
    return Index(engine, setting, ids, ids, None)


def _show(flat: Any, gallery: Float32[np.ndarray, "N D"]) -> None:
    """Lets an empty flat index read the rows of an array, which must live as long as the index."""
    values = faiss.swig_ptr(gallery.reshape(-1).view(np.uint8))
    nobody = flat.codes.owner  # a shared pointer to no owner, which Python cannot create
    vector: Any = faiss.MaybeOwnedVectorUInt8
    flat.codes = vector.create_view(values, gallery.nbytes, nobody)
    flat.ntotal = len(gallery)


def recall_mapped(index: Index, k: int, sample: int, seed: int) -> Recall:
    """`recall.recall` of an index with the ids 0 to N - 1, whose rows are the queries. Exact search reads
    `PART` rows at a time."""
    chosen, ids = sampled(len(index.ids), sample, seed), index.ids
    parts = (ids[start : start + PART] for start in range(0, len(ids), PART))
    of_parts = ((vectors_at(index, rows), rows) for rows in parts)
    return recall_of_parts(index, of_parts, vectors_at(index, chosen), chosen, k)


def all_vectors(index: Index) -> Float32[np.ndarray, "N D"]:
    """The vectors of all rows. Flat and HNSW indexes and the refined codes give their own memory, which may
    be that of a file: the index must live as long as the result. An inverted file gives a copy."""
    storage = index.engine
    if isinstance(index.setting, IvfPq):
        storage = faiss.downcast_index(index.engine.refine_index)
    elif isinstance(index.setting, Hnsw):
        storage = faiss.downcast_index(index.engine.storage)
    elif isinstance(index.setting, Cells):
        return vectors_at(index, index.ids)
    values = faiss.rev_swig_ptr(storage.get_xb(), storage.ntotal * storage.d)
    return values.reshape(storage.ntotal, storage.d)
