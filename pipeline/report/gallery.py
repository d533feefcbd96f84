"""Galleries: test images with what was retrieved for them, the worst first, right and wrong marked."""

import base64
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import simplejpeg
from jaxtyping import Int, UInt8

from pipeline.data.decode import decode
from pipeline.data.shards import Shards
from pipeline.report.names import labels_of

QUALITY = 82  # of thumbnails
Thumbnail = Callable[[int], str]
Right = Callable[[int, int], bool | None]  # of a query and another row: is it sought; None: it counts neither way
MEASURES = {"ap_at_r": "AP@R", "medium_ap": "AP"}  # columns of the per-query files, the first that is there


@dataclass(frozen=True)
class Picture:
    """`right` is None for the query itself."""

    row: int
    image: str  # data URI
    class_name: str
    label: str  # the class, by what tells it from the others
    source: str  # path within the data set
    right: bool | None = None
    similarity: float | None = None


@dataclass(frozen=True)
class Query:
    picture: Picture
    matches: tuple[Picture, ...]
    score: float
    measure: str  # what `score` is
    relevant: int
    first_positive: int | None  # rank of the first right match; None: beyond those searched


@dataclass(frozen=True)
class Group:
    title: str
    queries: tuple[Query, ...]


def choose(table: pa.Table, count: int, seed: int = 0) -> list[tuple[str, Int[np.ndarray, " q"]]]:
    """(title, positions in `table`) of the queries to show: half of them the worst, a quarter from the middle, a quarter drawn at random.

    Worst first: ascending average precision, then the later first right match, then the row id. The random ones are drawn from the row ids alone,
    so every method of a data set shows the same. Lone queries, which have nothing to find, are left out.
    """
    scored = np.flatnonzero(table["relevant"].to_numpy() > 0)
    ap = table[measure_of(table)].to_numpy(zero_copy_only=False)[scored]
    first = np.zeros(len(scored))
    if "first_positive" in table.column_names:
        first = np.nan_to_num(table["first_positive"].to_numpy(zero_copy_only=False).astype(float)[scored], nan=np.inf)
    rows = table["row_id"].to_numpy()[scored]
    order = scored[np.lexsort((rows, -first, ap))]
    quarter = count // 4
    worst = order[: count - 2 * quarter]
    middle = max(len(worst), (len(order) - quarter) // 2)
    median = order[middle : middle + quarter]
    taken = {*worst.tolist(), *median.tolist()}
    by_row = scored[np.argsort(rows)]
    drawn = [position for position in np.random.default_rng(seed).permutation(by_row).tolist() if position not in taken][:quarter]
    chosen = [("Worst queries", worst), ("Around the median", median), ("Drawn at random", np.array(drawn, dtype=np.int64))]
    return [(title, positions) for title, positions in chosen if len(positions)]


def gallery(shards: Shards, queries: pa.Table, neighbours: pa.Table, count: int, matches: int, thumbnail: Thumbnail) -> list[Group]:
    """The chosen queries of one run, each with its `matches` nearest test images, what counts neither way left out."""
    row_ids, right_of, measure = queries["row_id"].to_numpy(), judge(shards), measure_of(queries)
    labels = labels_of(shards.class_names)
    place = {int(row): position for position, row in enumerate(neighbours["row_id"].to_numpy())}

    def picture(row: int, right: bool | None = None, similarity: float | None = None) -> Picture:
        of = shards.labels[row]
        return Picture(row, thumbnail(row), shards.class_names[of], labels[of], shards.sources[row], right, similarity)

    def query(position: int) -> Query:
        row = int(row_ids[position])
        found = zip(*(neighbours[name][place[row]].as_py() for name in ("neighbours", "similarities")), strict=True)
        judged = [(other, right, similarity) for other, similarity in found if (right := right_of(row, other)) is not None]
        return Query(
            picture=picture(row),
            matches=tuple(picture(*one) for one in judged[:matches]),
            score=queries[measure][position].as_py(),
            measure=MEASURES[measure],
            relevant=queries["relevant"][position].as_py(),
            first_positive=queries["first_positive"][position].as_py() if "first_positive" in queries.column_names else None,
        )

    return [Group(title, tuple(query(int(position)) for position in positions)) for title, positions in choose(queries, count)]


def measure_of(queries: pa.Table) -> str:
    """The column by which queries are told from worse ones."""
    return next(name for name in MEASURES if name in queries.column_names)


def judge(shards: Shards) -> Right:
    """Same class; where a landmark set brings its ground truth, what it names easy or hard, and nothing for its junk."""
    path = shards.directory / "ground_truth.parquet"
    if not path.is_file():
        return lambda query, other: bool(shards.labels[other] == shards.labels[query])
    truth = {row["query"]: row for row in pq.read_table(path).to_pylist()}
    junk = {query: frozenset(row["junk"]) for query, row in truth.items()}
    sought = {query: frozenset(row["easy"]) | frozenset(row["hard"]) for query, row in truth.items()}
    return lambda query, other: None if other in junk[query] else other in sought[query]


def data_uri(encoded: UInt8[np.ndarray, "bytes"], size: int) -> str:
    """A picture as a JPEG within a page, its longer side at most `size` pixels. Raises ValueError as `decode` does."""
    image = decode(encoded)
    scale = size / max(image.shape[:2])
    if scale < 1:
        sides = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = cv2.resize(image, sides, interpolation=cv2.INTER_AREA)
    jpeg = simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=QUALITY, colorspace="RGB")
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")


def thumbnails(shards: Shards, size: int) -> Thumbnail:
    """A function from row id to a data URI: JPEG, longer side at most `size` pixels, made once per row."""
    made: dict[int, str] = {}

    def thumbnail(row: int) -> str:
        if row not in made:
            made[row] = data_uri(shards.image(row), size)
        return made[row]

    return thumbnail
