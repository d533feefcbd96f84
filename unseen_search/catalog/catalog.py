"""The catalog of a folder of pictures: the index of their vectors, and the model that embeds the queries."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from hashlib import sha256
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int64
from safetensors.numpy import load_file

from unseen.data.settings import Input
from unseen.evaluation.decision import NEAREST, WITH_MARGIN, LeftOut, Means
from unseen.evaluation.index.index import Index, load, search, vectors_at
from unseen.evaluation.index.kinds import from_plain
from unseen.evaluation.unknown import Threshold
from unseen.frozen.encoded import Picture, Precision, pictures_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import complete_directory, regular
from unseen_search.catalog.answers import NEIGHBOURS, Answer, Match, answers_of
from unseen_search.catalog.engine import Engine, OnnxEngine, runs_onnx
from unseen_search.catalog.files import (
    ABOUT,
    DECISION,
    INDEX,
    MODEL,
    ONNX_MODEL,
    PICTURES,
    RIVALS,
    VERIFIED,
    precision_of,
    read_about,
    read_part,
    rebuild,
    verify_file,
)

if TYPE_CHECKING:
    from unseen.frozen.embedder import Embedder

_EXCHANGES = 10  # of the directory by builds, while one reader opens it


class Catalog:
    """A catalog that `build` wrote.

    verify: compare the sha256 of index and tables with catalog.json, so that one wrong bit is an error; it
    reads them once more. None: of files up to `VERIFIED` bytes, and of larger ones the size, so that a
    catalog of 10^6 pictures opens at once. The model is always verified, at its first use. A larger index is
    mapped into memory, and the table is read when it is needed.

    A build may replace the directory meanwhile, or be killed while it does: all parts are those of one
    complete catalog, the earlier or the new one. Several threads can search at the same time.

    Raises UserError if a part is missing, damaged, of another catalog or of another schema version.
    """

    def __init__(self, directory: str | Path, verify: bool | None = None) -> None:
        self.directory = Path(directory)
        for _ in range(_EXCHANGES):
            place, before = complete_directory(self.directory), _identity(self.directory)
            try:
                self._load(place, verify)
            except UserError:
                if _identity(self.directory) == before:
                    raise
            else:
                if _identity(self.directory) == before:
                    return
        raise UserError(
            f"{self.directory} was exchanged {_EXCHANGES} times while it was read.",
            "End the builds that write it again and again.",
        )

    def _load(self, directory: Path, verify: bool | None) -> None:
        """Reads the catalog in `directory`."""
        self.about = read_about(directory)
        for name in self.about["files"]:
            deferred = name == ONNX_MODEL and not verify
            read_part(directory, name, partial(verify_file, self.about, name, False if deferred else verify))
        self._table: pq.ParquetFile = read_part(directory, PICTURES, pq.ParquetFile)
        self._reading = threading.Lock()  # one thread at a time may read by a ParquetFile
        setting = from_plain(self.about["index"])
        self.index: Index = read_part(
            directory, INDEX, lambda path: load(path, setting, path.stat().st_size > VERIFIED)
        )
        self.means: dict[str, Means] = {}  # by rule of class means
        if DECISION in self.about["files"]:
            self.means = read_part(directory, DECISION, _means)
        vectors = len(self.index.ids)
        if not len(self) == vectors == self.about["pictures"]:
            raise UserError(
                f"{directory} is damaged: {len(self):,} pictures, {vectors:,} vectors.",
                rebuild(self.directory),
            )
        if (dim := int(self.index.engine.d)) != self.about["dim"]:
            raise UserError(
                f"{directory / ABOUT} is damaged: its `dim` is {self.about['dim']}, the vectors have {dim}.",
                rebuild(self.directory),
            )

    def __len__(self) -> int:
        return int(self._table.metadata.num_rows)

    @cached_property
    def paths(self) -> list[str]:
        """The path of each picture below `photos`. Raises UserError for a path that leaves this folder."""
        return [self._inside(path) for path in self._column("path")]

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each picture by its path."""
        return {path: row for row, path in enumerate(self.paths)}

    @cached_property
    def sha256(self) -> list[str]:
        """The digest of the file of each picture."""
        return self._column("sha256")

    @cached_property
    def labels(self) -> list[str | None]:
        """The label of each picture; None without one."""
        return self._column("label")

    @cached_property
    def products(self) -> list[str]:
        """The labels in the order in which they are numbered."""
        return sorted({label for label in self.labels if label is not None})

    @cached_property
    def stamps(self) -> tuple[list[int], list[int | None]]:
        """The size and the modification time of the file of each picture."""
        return self._column("size"), self._column("mtime_ns")

    def _column(self, name: str) -> list[Any]:
        values: list[Any] = self._part(lambda: self._table.read([name]))[name].to_pylist()
        return values

    def _group(self, number: int) -> pa.Table:
        """Paths and labels of a row group."""
        return self._part(lambda: self._table.read_row_group(number, ["path", "label"]))

    def _inside(self, path: str) -> str:
        """A path below the folder of the pictures. A catalog of somebody else must name no other file."""
        if path.startswith("/") or ".." in path.split("/"):
            raise UserError(
                f"{self.directory / PICTURES} names a file outside of the folder of the pictures: {path}.",
                "Do not use this catalog, or build it again from the pictures.",
            )
        return path

    def picture(self, row: int) -> bytes:
        """The file of a picture. Raises FileNotFoundError if it is missing, and ValueError if it is not the
        file of the build, so that a page shows no other picture."""
        content = regular(self.photos / self.paths[row]).read_bytes()
        if sha256(content).hexdigest() != self.sha256[row]:
            raise ValueError(f"{self.paths[row]} has changed since the catalog was built")
        return content

    def _part(self, reader: Callable[[], pa.Table]) -> pa.Table:
        """A part of the table. Its file was opened with the catalog: a build does not change it."""
        try:
            with self._reading:
                return reader()
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise UserError(
                f"{self.directory / PICTURES} is damaged: {str(error).splitlines()[0]}.",
                rebuild(self.directory),
            ) from error

    def _pictures_at(self, rows: Sequence[int]) -> dict[int, tuple[str, str | None]]:
        """Path and label of rows. It reads the row groups that contain them."""
        groups = np.cumsum(
            [0, *(self._table.metadata.row_group(n).num_rows for n in range(self._table.num_row_groups))]
        )
        pictures: dict[int, tuple[str, str | None]] = {}
        asked = np.unique(np.array(rows, np.int64))
        for group in np.unique(np.searchsorted(groups, asked, "right") - 1).tolist():
            inside = asked[(asked >= groups[group]) & (asked < groups[group + 1])]
            # Table.take would import pandas, 0.4 s
            paths, labels = self._group(group).columns
            for row in inside.tolist():
                place = row - int(groups[group])
                pictures[row] = paths[place].as_py(), labels[place].as_py()
        for path, _ in pictures.values():
            self._inside(path)
        return pictures

    @property
    def photos(self) -> Path:
        """The folder of the pictures; the path of a match is relative to it."""
        return Path(self.about["photos"])

    @property
    def precision(self) -> Precision:
        """The precision in which the model embeds pictures and queries."""
        return precision_of(self.about)

    @cached_property
    def embedder(self) -> "Embedder":
        """The model of this catalog in PyTorch, loaded at the first use."""
        from unseen.frozen.embedder import Embedder  # imports PyTorch

        embedder = Embedder(complete_directory(self.directory) / MODEL, self.precision)
        if embedder.fingerprint() != self.about["fingerprint"]:
            model = self.about["model"]
            raise UserError(
                f"{self.directory / MODEL} is not the model that embedded this catalog ({model}).",
                rebuild(self.directory, model=True),
            )
        return embedder

    @cached_property
    def engine(self) -> Engine:
        """What embeds queries: the ONNX model of this catalog where it runs, otherwise `embedder`."""
        if self.about["onnx"] is None or not runs_onnx():
            return self.embedder
        directory = complete_directory(self.directory)
        read_part(directory, ONNX_MODEL, partial(verify_file, self.about, ONNX_MODEL, True))
        input = read_part(directory, ABOUT, lambda _: Input.model_validate(self.about["onnx"]["input"]))
        return OnnxEngine(directory / ONNX_MODEL, input)

    @property
    def rule(self) -> str:
        """The rule of the products (decision.py); `nearest` for a catalog without labels."""
        return self.rules[0]

    @property
    def rules(self) -> list[str]:
        """This rule, and those that are better at a threshold for a share of false matches (unknown.py)."""
        decision = self.about["decision"]
        if decision is None:
            return [NEAREST]
        return list(dict.fromkeys((decision["rule"], *(each["rule"] for each in decision["bounded"]))))

    def vectors(self, rows: Int64[np.ndarray, "P"] | None = None) -> Float32[np.ndarray, "P D"]:
        """The unit vectors of pictures by their position in `paths`; None: of all."""
        return vectors_at(self.index, self.index.ids if rows is None else rows)

    def find(self, pictures: Picture | Sequence[Picture], k: int = 10) -> list[list[Match]]:
        """The k nearest pictures of each of `pictures`, nearest first; fewer if the index has fewer.

        A flat index compares all pictures; the other kinds can miss some.
        """
        queries = _searched(pictures, k)
        return self._matches(self.engine(queries), k) if queries else []

    def _matches(self, vectors: Float32[np.ndarray, "Q D"], k: int) -> list[list[Match]]:
        rows, similarities = search(self.index, vectors, None, min(k, len(self)))
        picture_of = self._pictures_at(rows[rows >= 0].tolist())
        return [
            [
                Match(picture_of[row][0], min(1.0, similarity), picture_of[row][1])
                for row, similarity in zip(*matches, strict=True)
                if row >= 0
            ]
            for matches in zip(rows.tolist(), similarities.tolist(), strict=True)
        ]

    def identify(
        self, pictures: Picture | Sequence[Picture], k: int = 10, threshold: Threshold | None = None
    ) -> list[Answer]:
        """The k nearest pictures of each of `pictures`, and the products by the rule of the threshold, or of
        the catalog without one. With a threshold, a query whose best product does not reach it is unknown;
        without labels, one whose nearest picture does not."""
        queries = _searched(pictures, k)
        if not queries:
            return []
        return self.answers(self.engine(queries), k, threshold.rule if threshold else self.rule, threshold)

    def answers(
        self, vectors: Float32[np.ndarray, "Q D"], k: int, rule: str, threshold: Threshold | None = None
    ) -> list[Answer]:
        """As `identify`, by one of `rules`, for the vectors of the queries."""
        means = self.means.get(rule.removesuffix(WITH_MARGIN))
        wide = self._matches(vectors, k if means or rule == NEAREST else max(k, NEIGHBOURS))
        scores = means.scores(vectors) if means else None
        return answers_of(rule, wide, k, threshold, self.products if means else [], scores)

    def threshold(
        self,
        at_most_false: float | None = None,
        confidence: float = 0.95,
        at_most_wrong: float | None = None,
        unknown: Mapping[str, Sequence[Picture]] | None = None,
    ) -> Threshold:
        """The score at which at most a share of the photos of unknown products get an answer, and at most a
        share of those of known products a wrong one, with this confidence (unknown.py). It is measured on the
        products that the model was not trained on. unknown: photos of unknown products, by product, as
        further evidence. If a picture has no label, each picture is a product of its own, which is
        conservative (unlabelled.py).

        Raises UserError if the products are too few for a share, all pictures have one label, or most answers
        would be wrong, and UncalibratedError if the model was trained on the products, or, without labels, on
        any product.
        """
        from unseen_search.catalog.thresholds import threshold_of

        return threshold_of(self, at_most_false, at_most_wrong, confidence, unknown or {})

    def left_out(self) -> dict[str, LeftOut]:
        """By rule, what the pictures get if they are left out (decision.py)."""
        table: pa.Table = read_part(
            self.directory, RIVALS, lambda path: pq.read_table(path, memory_map=False)
        )
        columns = [np.split(table[name].to_numpy(), len(self.rules)) for name in LeftOut._fields]
        return {rule: LeftOut(*own) for rule, own in zip(self.rules, zip(*columns, strict=True), strict=True)}


def _searched(pictures: Picture | Sequence[Picture], k: int) -> list[Picture]:
    """The pictures to search for. Raises UserError for fewer than one match, and as `pictures_of` does."""
    if not isinstance(k, Integral) or k < 1:
        raise UserError(f"k is {k!r}, expected 1 or more.", "Set -k to the number of matches per picture.")
    return pictures_of(pictures)


def _identity(directory: Path) -> tuple[Path, int | None]:
    """What changes when `build` replaces the catalog: where it is, and its inode."""
    place = complete_directory(directory)
    try:
        return place, place.stat().st_ino
    except OSError:
        return place, None


def _means(path: Path) -> dict[str, Means]:
    tensors = load_file(path)
    kinds = {name.partition("/")[0] for name in tensors}
    return {kind: Means(*(tensors.get(f"{kind}/{name}") for name in Means._fields)) for kind in kinds}
