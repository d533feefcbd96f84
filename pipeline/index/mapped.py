"""Indexes of galleries that are mapped into memory from a file, so that the memory contains the index alone.

The index is that of `index.build`, except that k-means learns from a sample of a larger gallery.
"""

import dataclasses

import faiss
import numpy as np
from jaxtyping import Float32

from pipeline.index.index import Index, threads, vectors_at
from pipeline.index.kinds import CENTRES, Flat, Hnsw, Ivf, IvfPq, Setting, default_lists, prepare, train

PER_LIST = 64  # rows of the sample for each list of an inverted file
SEED = 0  # of the sample


def build_mapped(gallery: Float32[np.ndarray, "N D"], setting: Setting) -> Index:
    """The index of the rows of a contiguous array, with the ids 0 to N - 1.

    Raises UserError as `kinds.train` does, and ValueError for an index of codes only.
    """
    if isinstance(setting, IvfPq) and setting.refine is None:
        raise ValueError("an index of codes only needs the vectors in memory for each search")
    fixed, sample = setting, gallery
    if isinstance(setting, Ivf):
        fixed = dataclasses.replace(setting, lists=setting.lists or default_lists(len(gallery)))
        size = max(PER_LIST * (fixed.lists or 1), 256 * CENTRES)
        if size < len(gallery):
            chosen = np.random.default_rng(SEED).choice(len(gallery), size, replace=False)
            sample = gallery[np.sort(chosen)]
    with threads(1 if isinstance(setting, Flat) else setting.build_threads):
        engine = train(sample, fixed)
        del sample
        engine.add(gallery)  # at once: FAISS allocates the memory of all rows, and does not enlarge it
    prepare(engine, setting)
    ids = np.arange(len(gallery))
    return Index(engine, setting, ids, ids, None)


def all_vectors(index: Index) -> Float32[np.ndarray, "N D"]:
    """The vectors of all rows. Flat and HNSW indexes and the refined codes give their own memory, which may
    be that of a file: the index must live as long as the result. An inverted file gives a copy."""
    storage = index.engine
    if isinstance(index.setting, IvfPq):
        storage = faiss.downcast_index(index.engine.refine_index)
    elif isinstance(index.setting, Hnsw):
        storage = faiss.downcast_index(index.engine.storage)
    elif isinstance(index.setting, Ivf):
        return vectors_at(index, index.ids)
    values = faiss.rev_swig_ptr(storage.get_xb(), storage.ntotal * storage.d)
    return values.reshape(storage.ntotal, storage.d)
