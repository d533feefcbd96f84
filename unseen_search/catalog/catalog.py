"""The catalog of a folder of pictures: the index of their vectors, and the model that embeds the queries.

A catalog is a directory with all files that a search needs:

index.faiss         FAISS index of the unit vectors, row i for picture i (IndexFlatIP, or another kind of
                    pipeline/evaluation/index); inner products are cosines, readable by any program with FAISS
pictures.parquet    path below the folder of the pictures; sha256, size and modification time of the file; its
                    label (a time just before the build and a missing label are null)
rivals.parquet      what each picture gets if it or its product is left out (decision.py), or, if a picture
                    has no label, if its near-duplicates are (unlabelled.py)
decision.safetensors  what a rule of class means needs (decision.py)
decision.svg        what known photos get at each rate of false matches (curve.py)
catalog.json        schema version, folder and number of the pictures, name and fingerprint of the model, the
                    precision in which it embeds (float32 without this key), setting of the index and its
                    recall against exact search, source of the labels, rule of the products, all rules and the
                    curve (null without labels), files that were left out, sha256 and size of the files above;
                    largest difference of the vectors of the ONNX model, and its input (null without one)
model/              weights.safetensors, and recipe.json of a trained model or network.json of a published
                    network; the names of its training classes if they are known (training_classes.py);
                    model.onnx, which embeds queries without PyTorch (engine.py)
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from hashlib import sha256
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int64
from safetensors.numpy import load_file

from unseen.data.settings import Input
from unseen.evaluation.decision import NEAREST, LeftOut, Means
from unseen.evaluation.index.index import Index, load, search, vectors_at
from unseen.evaluation.index.kinds import from_plain
from unseen.evaluation.unknown import Threshold
from unseen.frozen.encoded import Picture, Precision, pictures_of
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import complete_directory, regular
from unseen_search.catalog.answers import NEIGHBOURS, Answer, Match, answers_of
from unseen_search.catalog.engine import ONNX, Engine, OnnxEngine, runs_onnx

if TYPE_CHECKING:
    from unseen.frozen.embedder import Embedder

INDEX, PICTURES, RIVALS = "index.faiss", "pictures.parquet", "rivals.parquet"
DECISION, CURVE = "decision.safetensors", "decision.svg"
ABOUT, MODEL = "catalog.json", "model"
ONNX_MODEL = f"{MODEL}/{ONNX}"
VERIFIED = 64 * 2**20  # bytes of a file that is verified whenever a catalog is opened
SCHEMA_VERSION = 3  # of the directory; catalogs of unreleased versions have none
_EXCHANGES = 10  # of the directory by builds, while one reader opens it
_ABOUT_TYPES = {
    "photos": str, "pictures": int, "dim": int, "model": str, "fingerprint": str,
    "index": dict, "labels": str, "files": dict, "sizes": dict,
}  # fmt: skip


class Catalog:
    """A catalog that `build` wrote.

    verify: compare the sha256 of index and tables with catalog.json, so that one wrong bit is an error; it
    reads them once more. None: of files up to `VERIFIED` bytes, and of larger ones the size, so that a
    catalog of 10^6 pictures opens at once. The model is always verified, at its first use. A larger index is
    mapped into memory, and the table is read when it is needed.

    A build may replace the directory meanwhile, or be killed while it does: all parts are those of one
    complete catalog, the earlier or the new one.

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
            _read(directory, name, partial(_verify, self.about, name, False if deferred else verify))
        self._table: pq.ParquetFile = _read(directory, PICTURES, pq.ParquetFile)
        setting = from_plain(self.about["index"])
        self.index: Index = _read(
            directory, INDEX, lambda path: load(path, setting, path.stat().st_size > VERIFIED)
        )
        self.means: Means | None = None
        if DECISION in self.about["files"]:
            self.means = _read(directory, DECISION, _means)
        vectors = len(self.index.ids)
        if not len(self) == vectors == self.about["pictures"]:
            raise UserError(
                f"{directory} is damaged: {len(self):,} pictures, {vectors:,} vectors.",
                _rebuild(self.directory),
            )
        if (dim := int(self.index.engine.d)) != self.about["dim"]:
            raise UserError(
                f"{directory / ABOUT} is damaged: its `dim` is {self.about['dim']}, the vectors have {dim}.",
                _rebuild(self.directory),
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
            return reader()
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise UserError(
                f"{self.directory / PICTURES} is damaged: {str(error).splitlines()[0]}.",
                _rebuild(self.directory),
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
                _rebuild(self.directory, model=True),
            )
        return embedder

    @cached_property
    def engine(self) -> Engine:
        """What embeds queries: the ONNX model of this catalog where it runs, otherwise `embedder`."""
        if self.about.get("onnx") is None or not runs_onnx():
            return self.embedder
        directory = complete_directory(self.directory)
        _read(directory, ONNX_MODEL, partial(_verify, self.about, ONNX_MODEL, True))
        input = _read(directory, ABOUT, lambda _: Input.model_validate(self.about["onnx"]["input"]))
        return OnnxEngine(directory / ONNX_MODEL, input)

    @property
    def rule(self) -> str:
        """The rule of the products (decision.py); `nearest` for a catalog without labels, or of a version
        without a choice."""
        decision = self.about.get("decision")
        return NEAREST if decision is None else str(decision["rule"])

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
        """The k nearest pictures of each of `pictures`, and the products by the rule of the catalog. With a
        threshold, a query whose best product does not reach it is unknown; without labels, one whose nearest
        picture does not."""
        queries = _searched(pictures, k)
        if not queries:
            return []
        vectors = self.engine(queries)
        wide = self._matches(vectors, k if self.means or self.rule == NEAREST else max(k, NEIGHBOURS))
        scores = self.means.scores(vectors) if self.means else None
        return answers_of(self.rule, wide, k, threshold, self.products if self.means else [], scores)

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

    def left_out(self) -> LeftOut:
        """What the pictures get if they are left out (decision.py)."""
        table: pa.Table = _read(self.directory, RIVALS, lambda path: pq.read_table(path, memory_map=False))
        columns = {name: table[name].to_numpy() for name in table.column_names}
        if "same" in columns:  # of a version without a choice: cosine with another picture of the product
            same = columns.pop("same")
            is_right = same > columns["other"]
            columns["known"] = np.where(is_right, same, columns["other"] + 0 * same)
            columns["answer"] = np.where(is_right, columns["label"], columns["rival"])
        return LeftOut(**columns)


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


def read_about(directory: Path) -> dict[str, Any]:
    """The content of catalog.json.

    Raises UserError if it is missing, damaged or of another schema version.
    """
    about: dict[str, Any] = _read(directory, ABOUT, _about)
    if about["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"{directory / ABOUT} has schema version {about['schema_version']}, this version of unseen reads "
            f"{SCHEMA_VERSION}.",
            _rebuild(directory, model=True),
        )
    return about


def _means(path: Path) -> Means:
    tensors = load_file(path)
    return Means(tensors["centre"], tensors.get("whitener"), tensors["products"])


def precision_of(about: dict[str, Any]) -> Precision:
    """The precision of a catalog.json; float32 if a version without this setting wrote it."""
    precision: Precision = about.get("precision", "float32")
    return precision


def _read(directory: Path, name: str, reader: Callable[[Path], Any]) -> Any:
    path = directory / name
    if not path.is_file():
        raise UserError(
            f"{path} is missing: {directory} is not a catalog.",
            f"Build one: `unseen index PHOTOS {directory}`.",
        )
    try:
        return reader(path)
    except (OSError, ValueError, RuntimeError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} is damaged: {str(error).splitlines()[0]}.", _rebuild(directory)) from error


def _verify(about: dict[str, Any], name: str, verify: bool | None, path: Path) -> None:
    digest, size, length = about["files"][name], about["sizes"][name], path.stat().st_size
    if length != size:
        raise ValueError(f"it has {length:,} bytes, the build wrote {size:,}")
    if (verify or (verify is None and size <= VERIFIED)) and sha256_of(path) != digest:
        raise ValueError("its sha256 is not that of the build")


def _rebuild(directory: Path, model: bool = False) -> str:
    """The remedy for a damaged catalog. model: whether its model cannot be used."""
    named = " --network NAME` or `--model DIR" if model else ""
    return f"Build the catalog again: `unseen index PHOTOS {directory}{named}`."


def _about(path: Path) -> dict[str, Any]:
    """The content of catalog.json. Raises ValueError if `build` did not write it."""
    about = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(about, dict):
        raise ValueError("it contains no object")
    about.setdefault("schema_version", None)
    if about["schema_version"] == SCHEMA_VERSION:
        if not about.keys() >= _ABOUT_TYPES.keys():
            raise ValueError(f"it lacks one of the keys {', '.join(sorted(_ABOUT_TYPES))}")
        for name, kind in _ABOUT_TYPES.items():
            if type(about[name]) is not kind:
                raise ValueError(f"its `{name}` is not of type {kind.__name__}")
        if about.get("precision", "float32") not in get_args(Precision):
            raise ValueError("its `precision` is unknown")
        json.dumps(about, ensure_ascii=False).encode()  # ValueError for a lone surrogate
        from_plain(about["index"])
        files, sizes = about["files"], about["sizes"]
        if files.keys() != sizes.keys():
            raise ValueError("its `files` and `sizes` name different files")
        if not all(isinstance(size, int) for size in sizes.values()):
            raise ValueError("one of its `sizes` is no integer")
    return about
