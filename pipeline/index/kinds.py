"""The kinds of approximate index: what each is told, and how FAISS is asked for it.

Ivf    k-means cuts the gallery into `lists` cells; a query looks at the rows of the `probes` cells whose centres are nearest
       (Sivic and Zisserman, Video Google; Jegou et al., Product quantization for nearest neighbor search, sec. IV, without the quantisation)
IvfPq  the same cells; the residual of a row from its cell's centre is cut into m parts, and a byte for each says which of 256 centres is nearest
       (Product quantization for nearest neighbor search, sec. IV); the first `refine` by these codes are ranked anew by their full vectors
Hnsw   a layered graph of each row's `neighbours` near rows, walked greedily with the best `search_width` rows kept
       (Malkov and Yashunin, Efficient and robust approximate nearest neighbor search using HNSW graphs)
"""

import dataclasses
from typing import Any

import faiss
import numpy as np
from jaxtyping import Float32, Int64

from pipeline.runtime.errors import UserError

LEAST_PER_LIST = 39  # rows a cell is learned from; FAISS, Clustering.h, min_points_per_centroid
CENTRES = 256  # of each part of a code: a byte says which
AT_SEARCH_TIME = ("probes", "refine", "search_width")  # settings that leave the built index as it is


@dataclasses.dataclass(frozen=True)
class Ivf:
    """Inverted file over full vectors. `lists` None: 4 sqrt(N) cells (FAISS wiki, guidelines to choose an index), no more than can be learned."""

    lists: int | None = None
    probes: int = 64  # recall at 10 of about 0.91 among 50,000 embeddings, 0.85 among 200,000
    seed: int = 1234  # of k-means; FAISS's default
    build_threads: int = 1


@dataclasses.dataclass(frozen=True)
class IvfPq(Ivf):
    """Inverted file of codes: m = `code_bytes`, which must divide the dimensions, seeded as the cells are.

    The first `refine` rows by their codes, or as many as are searched for where these are more, are ranked anew by their full vectors, which the
    index then holds beside the codes. None: it holds codes alone, and what these leave out of the first k + 5 is lost.
    """

    code_bytes: int = 32
    refine: int | None = 100  # recall at 10 of about 0.89 among 50,000 embeddings, 0.79 among 200,000


@dataclasses.dataclass(frozen=True)
class Hnsw:
    """Navigable graph over full vectors. Defaults: FAISS's degree; widths that reach a recall at 10 of about 0.98 among 50,000 embeddings, 0.94 among
    200,000 (18 effective dimensions, docs/scale.md)."""

    neighbours: int = 32
    build_width: int = 100
    search_width: int = 64
    build_threads: int = 1


Setting = Ivf | IvfPq | Hnsw
KINDS: dict[str, type[Ivf] | type[Hnsw]] = {"ivf": Ivf, "ivf_pq": IvfPq, "hnsw": Hnsw}  # by the name that params.yaml has for them


def kind_of(setting: Setting) -> str:
    """The name of a setting's kind."""
    return next(name for name, kind in KINDS.items() if type(setting) is kind)


def trained(gallery: Float32[np.ndarray, "N D"], setting: Setting) -> Any:
    """An index that has learned what it learns from the gallery, and holds no row yet.

    Raises UserError for more lists than rows, codes that do not divide D, and a gallery too small to learn codes from.
    """
    rows, dim = gallery.shape
    if isinstance(setting, Hnsw):
        graph = faiss.IndexHNSWFlat(dim, setting.neighbours, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = setting.build_width
        return graph
    index = faiss.index_factory(dim, f"IVF{_lists(setting, rows)},{_held(setting, rows, dim)}", faiss.METRIC_INNER_PRODUCT)
    cells = _cells(index)
    cells.cp.seed = setting.seed
    if isinstance(setting, IvfPq):
        cells.pq.cp.seed = setting.seed
        cells.pq.cp.min_points_per_centroid = 1  # no warning for each part below 39: what few rows cost shows in the recall
    index.train(gallery)
    return index


def set_search(index: Any, setting: Setting) -> None:
    """Tells an index what its setting says of searches, but for what `propose` says."""
    if isinstance(setting, Hnsw):
        index.hnsw.efSearch = setting.search_width
    else:
        cells = _cells(index)
        cells.nprobe = min(setting.probes, cells.nlist)


def propose(index: Any, setting: Setting, queries: Float32[np.ndarray, "Q D"], wanted: int) -> Int64[np.ndarray, "Q K"]:
    """Rows that the index finds for each query, K = `wanted`, best first and -1 where there are no more; `refine` of them ranked anew.

    How many is set for the time of a search: a parameter of the search would be the other way, but once any library has imported
    faiss.contrib.torch_utils, `search` takes none.
    """
    if not isinstance(setting, IvfPq) or setting.refine is None:
        return np.asarray(index.search(queries, wanted)[1])
    before = index.k_factor
    index.k_factor = (max(setting.refine, wanted) + 0.5) / wanted  # a half: FAISS rounds k_factor x wanted down
    try:
        return np.asarray(index.search(queries, wanted)[1])
    finally:
        index.k_factor = before


def _cells(index: Any) -> Any:
    """The inverted file itself, whatever FAISS has put around it."""
    return faiss.downcast_index(faiss.extract_index_ivf(index))


def _lists(setting: Ivf, rows: int) -> int:
    lists = setting.lists or max(1, min(round(4 * rows**0.5), rows // LEAST_PER_LIST))
    if lists > rows:
        raise UserError(f"An inverted file of {lists:,} lists was asked for, the gallery has {rows:,} rows.", "Ask for fewer lists, or leave it out.")
    return lists


def _held(setting: Ivf, rows: int, dim: int) -> str:
    """What a list holds of a row, in the words of FAISS's factory."""
    if not isinstance(setting, IvfPq):
        return "Flat"
    if dim % setting.code_bytes:
        fitting = ", ".join(str(size) for size in range(1, dim + 1) if dim % size == 0)
        raise UserError(
            f"Codes of {setting.code_bytes} bytes were asked for, which embeddings of {dim} dimensions cannot be cut into.",
            f"Set code_bytes to a divisor of {dim}: {fitting}.",
        )
    if rows < CENTRES:
        raise UserError(
            f"Codes of bytes take {CENTRES} rows or more to learn their {CENTRES} centres from, the gallery has {rows:,}.",
            "Leave the index out: exact search of so few rows is faster than any. Kinds ivf and hnsw learn from fewer.",
        )
    return f"PQ{setting.code_bytes}x8np" + (",RFlat" if setting.refine is not None else "")  # np: no time for an order of centres that nothing uses
