"""Exact search over a gallery of several files, or one that does not fit into memory: part by part, top k merged.

The order of `search` is total and knows nothing of parts (similarity descending, then id ascending), so the first k of the union are the first k
among the first k of each part. A part is a file or as many of its rows as are asked for at a time; it is read, searched, merged and let go.

Memory: `rows` x D float32 of a part as it was stored and as much again centred for FAISS; Q x 2 k neighbours of 12 bytes; the ids of all rows, 8
bytes each, as long as they are not mapped files. A file that is mapped is read once, in order, part by part, for all queries together.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from pipeline.index.exact import search_blocks
from pipeline.runtime.errors import UserError

ROWS = 1 << 20  # of a part: 512 MiB at 128 dimensions, twice


class Shard(NamedTuple):
    """Rows of the gallery that are stored together, in any order."""

    row_id: Int64[np.ndarray, "N"]
    embedding: Float32[np.ndarray, "N D"]


def sharded_search(
    queries: Float32[np.ndarray, "Q D"], query_ids: Int64[np.ndarray, "Q"], shards: Iterable[Shard], k: int, rows: int = ROWS
) -> tuple[Int64[np.ndarray, "Q K"], Float32[np.ndarray, "Q K"]]:
    """What `search.exact_search` gives for the shards in one: ids and similarities, -1 and -inf where the gallery is short.

    `shards` may be a generator that reads them one after another. Raises UserError for a value that is not finite, an id that occurs twice or
    shards that hold no row; ValueError for another dimension than that of the queries.
    """
    ids = np.full((len(queries), k), -1, np.int64)
    similarities = np.full((len(queries), k), -np.inf, np.float32)
    seen: list[np.ndarray] = []
    for part in _parts(shards, rows):
        if part.embedding.shape[1] != queries.shape[1]:
            raise ValueError(f"a shard holds embeddings of {part.embedding.shape[1]} dimensions, the queries have {queries.shape[1]}")
        _not_seen(part.row_id, seen)
        seen.append(part.row_id)
        for block in search_blocks(queries, query_ids, part.embedding, part.row_id, min(k, len(part.row_id))):
            found = np.where(block.positions < 0, -1, part.row_id[block.positions])
            ids[block.queries], similarities[block.queries] = merge((ids[block.queries], found), (similarities[block.queries], block.similarities), k)
    if not seen:
        raise UserError("The gallery holds no image.", "Give the embedding files of the gallery; none of them has a row.")
    return ids, similarities


def merge(
    ids: tuple[Int64[np.ndarray, "Q _"], ...], similarities: tuple[Float32[np.ndarray, "Q _"], ...], k: int
) -> tuple[Int64[np.ndarray, "Q K"], Float32[np.ndarray, "Q K"]]:
    """The first k, in the defined order, of neighbour lists of the same queries that share no id; -1 and -inf, wherever they stand, come last."""
    all_ids, values = np.concatenate(ids, axis=1), np.concatenate(similarities, axis=1)
    ranking = np.lexsort((all_ids, -values), axis=-1)[:, :k]
    return np.take_along_axis(all_ids, ranking, axis=1), np.take_along_axis(values, ranking, axis=1)


def _parts(shards: Iterable[Shard], rows: int) -> Iterator[Shard]:
    for shard in shards:
        for start in range(0, len(shard.row_id), rows):
            yield Shard(shard.row_id[start : start + rows], shard.embedding[start : start + rows])


def _not_seen(ids: np.ndarray, seen: list[np.ndarray]) -> None:
    """Files of one export hold ranges of ids that do not overlap: only those that do are compared row by row."""
    low, high = ids.min(), ids.max()
    for earlier in seen:
        if earlier.max() >= low and earlier.min() <= high:
            twice = np.intersect1d(ids, earlier)
            if len(twice):
                raise UserError(f"Row id {twice[0]} is in two shards of the gallery ({len(twice):,} such ids).", "Give each embedding file once.")
