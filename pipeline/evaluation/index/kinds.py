"""The kinds of index, and how FAISS builds and searches each.

Flat   full vectors; a query is compared with all of them
Ivf    k-means cuts the gallery into `lists` cells; a query is compared with the rows of the `probes` cells
       whose centres are nearest (Sivic and Zisserman, Video Google; Jegou et al., Product quantization for
       nearest neighbor search, sec. IV, without the quantisation)
IvfPq  the same cells; the residual of a row from the centre of its cell is cut into m parts, and one byte per
       part names the nearest of 256 centres (Product quantization for nearest neighbor search, sec. IV); the
       `refine` rows with the best codes are compared again by their full vectors
Hnsw   a layered graph that links each row to `neighbours` near rows; a greedy walk keeps the best
       `search_width` rows (Malkov and Yashunin, Efficient and robust approximate nearest neighbor search
       using HNSW graphs)

docs/scale.md has the measured recall, speed and size of each kind.
"""

from typing import Annotated, Any

import faiss
import numpy as np
from jaxtyping import Float32, Int64
from pydantic import Field, TypeAdapter, ValidationError

from unseen.evaluation.settings import Cells, Flat, Hnsw, Ivf, IvfPq, Setting
from unseen.runtime.errors import UserError

LEAST_PER_LIST = 39  # rows from which k-means learns one cell; FAISS, Clustering.h, min_points_per_centroid
CENTRES = 256  # of each part of a code, as many as one byte can name


KINDS: dict[str, type[Flat] | type[Ivf] | type[IvfPq] | type[Hnsw]] = {
    "flat": Flat,
    "ivf": Ivf,
    "ivf_pq": IvfPq,
    "hnsw": Hnsw,
}
_ANY: TypeAdapter[Setting] = TypeAdapter(Annotated[Setting, Field(discriminator="kind")])


def to_plain(setting: Setting) -> dict[str, int | str | None]:
    """The kind and its settings as JSON contains them."""
    return {"kind": setting.kind, **setting.model_dump(exclude={"kind"})}


def from_plain(values: dict[str, Any]) -> Setting:
    """The inverse of `to_plain`. Raises ValueError for an unknown kind or unknown settings."""
    try:
        return _ANY.validate_python(values)
    except ValidationError as error:
        raise ValueError(f"{values} is not the setting of an index") from error


def stores_vectors(setting: Setting) -> bool:
    """Whether the index contains the full vectors; otherwise it contains only their codes."""
    return not isinstance(setting, IvfPq) or setting.refine is not None


def train(gallery: Float32[np.ndarray, "N D"], setting: Setting) -> Any:
    """An index whose cells and codes are learned from the gallery, without any row yet.

    Raises UserError for more lists than rows, for a code length that does not divide D, and for a gallery
    that is too small to learn codes.
    """
    rows, dim = gallery.shape
    if isinstance(setting, Flat):
        return faiss.IndexFlatIP(dim)
    if isinstance(setting, Hnsw):
        graph = faiss.IndexHNSWFlat(dim, setting.neighbours, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = setting.build_width
        return graph
    factory = f"IVF{_lists(setting, rows)},{_storage(setting, rows, dim)}"
    index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    cells = _cells(index)
    cells.cp.seed = setting.seed
    if isinstance(setting, IvfPq):
        cells.pq.cp.seed = setting.seed
        cells.pq.cp.min_points_per_centroid = 1  # no warnings for few rows: the recall shows the loss
    index.train(gallery)
    return index


def prepare(index: Any, setting: Setting) -> None:
    """Prepares an index with rows for searches and for access to its vectors by row number.

    Raises ValueError if the index is of another kind than the setting.
    """
    engine = _engine(setting)
    if not isinstance(index, engine):
        raise ValueError(f"expected a {engine.__name__}, got a {type(index).__name__}")
    if isinstance(setting, Hnsw):
        index.hnsw.efSearch = setting.search_width
    elif isinstance(setting, Cells):
        cells = _cells(index)
        cells.nprobe = min(setting.probes, cells.nlist)
        if not isinstance(setting, IvfPq):
            index.make_direct_map()  # the list and the place of each row; other kinds find a row without it


def propose(
    index: Any, setting: Setting, queries: Float32[np.ndarray, "Q D"], candidates: int
) -> Int64[np.ndarray, "Q K"]:
    """The K = `candidates` best rows of each query in FAISS's order, -1 where the index has fewer.

    The number of rows to compare again is set on the index for the duration of a search. FAISS also accepts
    it as a parameter of `search`, but not after any library has imported faiss.contrib.torch_utils.
    """
    if not isinstance(setting, IvfPq) or setting.refine is None:
        return np.asarray(index.search(queries, candidates)[1])
    before = index.k_factor
    # FAISS rounds k_factor x candidates down
    index.k_factor = (max(setting.refine, candidates) + 0.5) / candidates
    try:
        return np.asarray(index.search(queries, candidates)[1])
    finally:
        index.k_factor = before


def _engine(setting: Setting) -> Any:
    """The FAISS class of the index."""
    if isinstance(setting, IvfPq):
        return faiss.IndexRefineFlat if stores_vectors(setting) else faiss.IndexIVFPQ
    return {Flat: faiss.IndexFlat, Ivf: faiss.IndexIVFFlat, Hnsw: faiss.IndexHNSWFlat}[type(setting)]


def _cells(index: Any) -> Any:
    """The inverted file inside the wrappers that FAISS puts around it."""
    return faiss.downcast_index(faiss.extract_index_ivf(index))


def default_lists(rows: int) -> int:
    """The number of cells of a gallery: 4 sqrt(N), at most N / 39."""
    return max(1, min(round(4 * rows**0.5), rows // LEAST_PER_LIST))


def _lists(setting: Ivf | IvfPq, rows: int) -> int:
    lists = setting.lists or default_lists(rows)
    if lists > rows:
        raise UserError(
            f"The index has {lists:,} lists, but the gallery has only {rows:,} rows.",
            f"Set lists to {rows} or less, or leave it out.",
        )
    return lists


def _storage(setting: Ivf | IvfPq, rows: int, dim: int) -> str:
    """What a list stores of a row, as a part of the description for faiss.index_factory."""
    if not isinstance(setting, IvfPq):
        return "Flat"
    if dim % setting.code_bytes:
        divisors = ", ".join(str(size) for size in range(1, dim + 1) if dim % size == 0)
        raise UserError(
            f"Codes of {setting.code_bytes} bytes do not fit embeddings of {dim} dimensions.",
            f"Set code_bytes to a divisor of {dim}: {divisors}.",
        )
    if rows < CENTRES:
        raise UserError(
            f"Codes need {CENTRES} rows or more to learn {CENTRES} centres, but the gallery has {rows:,}.",
            "Use exact search, which is faster for so few rows. The kinds ivf and hnsw accept fewer rows.",
        )
    # np: no polysemous training, which would order the centres for a search mode that is not used here.
    return f"PQ{setting.code_bytes}x8np" + (",RFlat" if setting.refine is not None else "")
