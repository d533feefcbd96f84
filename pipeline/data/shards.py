"""A data set as shards: Arrow IPC files, memory-mapped and read at random.

    data/shards/<dataset>/
        shard-00000.arrow ...   row_id, image (encoded bytes), label, split, source; uncompressed, in batches
                                of at most 256 rows
        index.parquet           all columns except the bytes, and the place of each row; group and box only if
                                the set has them
        <extra>.parquet         ground truth other than classes, in row ids, if the set has such
        manifest.json           schema version, counts, sha256 of every file, settings of ingest

Equal rows give equal bytes. A read takes a few microseconds: the positions of all records of a shard are read
once, and an image is a slice of the mapped file. (`Table.take`, or `get_batch` for each read, is 20 to 200
times slower.) A process compares the sha256 of an image at its first read, which takes 4% of the time of
decoding a photograph, and that of a table at each opening.
"""

import bisect
import hashlib
import json
import mmap
import threading
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Bool, Float64, Int, Int64, Shaped, UInt8

from unseen.data.shard_schema import OPTIONAL, SCHEMA_VERSION, SPLITS
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError

# the keys of a manifest that are read here, with their types
_MANIFEST: dict[str, type] = {
    "counts": dict,
    "class_names": list,
    "shards": dict,
    "shard_bytes": dict,
    "shard_rows": dict,
    "index": str,
}
_MAGIC = b"ARROW1"
_PAGE = mmap.ALLOCATIONGRANULARITY
_READ_AT_ONCE = ["label", "split", "width", "height", "is_query", "is_gallery"]


class _Opened(NamedTuple):
    memory: mmap.mmap
    octets: UInt8[np.ndarray, " size"]  # the file
    begin: Int64[np.ndarray, " rows"]  # position of each record in octets
    end: Int64[np.ndarray, " rows"]


class Shards:
    """The rows of a data set. `row` is the row id, 0 ... N-1.

    Raises UserError if the files differ from the manifest. Existence, size, Arrow's end marker and the sha256
    of the index are checked at once, the sha256 of an extra table and of each image at its first read;
    `verify` compares every sha256 at once. Each process maps a file at its first read. Reads are thread-safe.
    """

    def __init__(self, directory: Path, verify: bool = False) -> None:
        self.directory = Path(directory)
        self._remedy = f"Build it again: dvc repro -f ingest@{self.directory.name}"
        self.manifest = self._read_manifest()
        self._files = sorted(self.manifest["shards"])
        self._check(verify)
        self._require_sha256(self.directory / "index.parquet", self.manifest["index"])
        index = self._read_index(_READ_AT_ONCE)
        self.class_names: list[str] = self.manifest["class_names"]
        self.labels: Int[np.ndarray, " N"] = index["label"].to_numpy()
        numbers = pc.index_in(index["split"], pa.array(SPLITS)).fill_null(-1)
        self._split: Int[np.ndarray, " N"] = numbers.to_numpy().astype(np.int8)
        sides = [index["width"].to_numpy(), index["height"].to_numpy()]
        self.sizes: Int[np.ndarray, "N 2"] = np.stack(sides, axis=1)
        self.is_query: Shaped[np.ndarray, " N"] = index["is_query"].to_numpy()
        self.is_gallery: Shaped[np.ndarray, " N"] = index["is_gallery"].to_numpy()
        schema = self._reading("index.parquet", pq.read_schema)
        self._optional = [name for name in OPTIONAL.names if name in schema.names]
        self._boxes: Float64[np.ndarray, "N 4"] | None = None
        if "box" in self._optional:
            boxes = self._read_index(["box"])["box"]
            sides = [pc.list_element(boxes, side).to_numpy() for side in range(4)]  # NaN: no box
            self._boxes = np.stack(sides, axis=1)
        self._is_compared = np.zeros(len(index), bool)
        rows = [self.manifest["shard_rows"][name] for name in self._files]
        if (total := sum(rows)) != len(index):
            self._refuse_rows(f"shard_rows sum to {total}, index.parquet has {len(index)} rows")
        self._first = np.concatenate([[0], np.cumsum(rows)]).astype(int).tolist()
        self._opened: list[_Opened | None] = [None] * len(self._files)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[type["Shards"], tuple[Path]]:
        return (type(self), (self.directory,))

    @property
    def fingerprint(self) -> str:
        """sha256 of the names and hashes of the shards.

        It is equal for equal images, labels, splits, sources, groups, boxes and extras.
        """
        files = {**self.manifest["shards"], **self.manifest.get("extras", {})}
        if self._optional:
            files["index.parquet"] = self.manifest["index"]
        return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()

    @property
    def splits(self) -> Shaped[np.ndarray, " N"]:
        """The name of the split of each row."""
        return np.array([*SPLITS, ""])[self._split]

    @property
    def sources(self) -> list[str]:
        """The source of each row, in a new list."""
        sources: list[str] = self._source_column.to_pylist()
        return sources

    @property
    def groups(self) -> list[str | None]:
        """The group of each row, in a new list."""
        groups: list[str | None] = [None] * len(self)
        return self._group_column.to_pylist() if "group" in self._optional else groups

    def source(self, row: int) -> str:
        """The source of one row."""
        source: str = self._source_column[row].as_py()
        return source

    def in_group(self, group: str) -> Bool[np.ndarray, " N"]:
        """Whether each row has this group."""
        if "group" not in self._optional:
            return np.zeros(len(self), bool)
        equal: Bool[np.ndarray, " N"] = pc.equal(self._group_column, group).fill_null(False).to_numpy()
        return equal

    @cached_property
    def _source_column(self) -> pa.ChunkedArray:
        return self._read_index(["source"])["source"]

    @cached_property
    def _sha256(self) -> pa.ChunkedArray:
        return self._read_index(["sha256"])["sha256"]

    @cached_property
    def _group_column(self) -> pa.ChunkedArray:
        return self._read_index(["group"])["group"]

    def rows(self, split: str) -> Int[np.ndarray, " n"]:
        """The row ids of a split, ascending."""
        if split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, got {split!r}")
        return np.flatnonzero(self._split == SPLITS.index(split)).astype(np.int64)

    def box(self, row: int) -> tuple[float, float, float, float] | None:
        """The box x0, y0, x1, y1 of the query in pixels of the stored image; None: the whole image."""
        if self._boxes is None or np.isnan(self._boxes[row, 0]):
            return None
        left, top, right, bottom = self._boxes[row].tolist()
        return left, top, right, bottom

    def extra(self, name: str) -> pa.Table:
        """The table `name`.parquet of the data set. Raises UserError for a missing or damaged one."""
        file, extras = f"{name}.parquet", self.manifest.get("extras", {})
        if file not in extras:
            raise UserError(
                f"{self.directory} has no {file}; it has: {', '.join(extras) or 'none'}.", self._remedy
            )
        self._require_sha256(self.directory / file, extras[file])
        return self._reading(file, partial(pq.read_table, memory_map=False))

    def image(self, row: int) -> UInt8[np.ndarray, " size"]:
        """The encoded bytes of a row, a read-only view of the mapped file.

        Raises IndexError for another row id, and UserError if the bytes are not those that were written.
        """
        if not 0 <= row < len(self.labels):
            raise IndexError(f"{self.directory} has rows 0 to {len(self) - 1}, got {row}")
        shard = bisect.bisect_right(self._first, row) - 1
        opened = self._opened[shard] or self._open(shard)
        position = row - self._first[shard]
        begin, end = int(opened.begin[position]), int(opened.end[position])
        # one read for the record; on a cold cache, single page faults are slow
        if hasattr(mmap, "MADV_WILLNEED"):
            start = begin - begin % _PAGE
            opened.memory.madvise(mmap.MADV_WILLNEED, start, end - start)
        octets = opened.octets[begin:end]
        if not self._is_compared[row]:
            self._compare(row, octets)
        return octets

    def _compare(self, row: int, octets: UInt8[np.ndarray, " size"]) -> None:
        """Raises UserError if the sha256 of an image differs from that of the index."""
        digest, expected = hashlib.sha256(octets.data).hexdigest(), self._sha256[row].as_py()
        if digest != expected:
            raise UserError(
                f"The image of row {row} in {self.directory}, from {self.source(row)}, is damaged: it has "
                f"sha256 {digest}, index.parquet lists {expected}.",
                self._remedy,
            )
        self._is_compared[row] = True

    def undecodable(self, row: int, reason: str) -> UserError:
        """The error for a row whose bytes are not a picture."""
        return UserError(
            f"The image of row {row} in {self.directory}, from {self.source(row)}, "
            f"cannot be decoded: {reason}.",
            f"The shard was damaged after it was written. {self._remedy}",
        )

    def _open(self, shard: int) -> _Opened:
        with self._lock:
            if (opened := self._opened[shard]) is not None:
                return opened
            name = self._files[shard]
            with open(self.directory / name, "rb") as file:
                memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            begin, end = self._reading(name, lambda _: _places(memory))
            opened = _Opened(memory, np.frombuffer(memory, np.uint8), begin, end)
            if (rows := len(begin)) != self.manifest["shard_rows"][name]:
                self._refuse_rows(f"{name} has {rows} rows, shard_rows lists another number")
            self._opened[shard] = opened
            return opened

    def _refuse_rows(self, reason: str) -> NoReturn:
        raise UserError(f"{self.directory / 'manifest.json'} is damaged: {reason}.", self._remedy)

    def _read_manifest(self) -> dict[str, Any]:
        path = self.directory / "manifest.json"
        if not path.exists():
            raise UserError(
                f"{self.directory} contains no shards: {path.name} is missing.",
                f"Build them: dvc repro ingest@{self.directory.name}",
            )
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:  # no JSON, or no UTF-8
            raise UserError(f"{path} is damaged: {error}.", self._remedy) from None
        if not isinstance(manifest, dict):
            raise UserError(f"{path} is damaged: it is not a mapping.", self._remedy)
        if manifest.get("schema_version") != SCHEMA_VERSION:
            version = manifest.get("schema_version")
            raise UserError(f"{path} has schema version {version}, expected {SCHEMA_VERSION}.", self._remedy)
        for key, kind in _MANIFEST.items():
            if not isinstance(manifest.get(key), kind):
                raise UserError(f"{path} is damaged: {key} is not a {kind.__name__}.", self._remedy)
        for key in ("shard_bytes", "shard_rows"):
            sizes = manifest[key]
            if sizes.keys() != manifest["shards"].keys() or any(
                type(size) is not int or size < 0 for size in sizes.values()
            ):
                raise UserError(f"{path} is damaged: {key} is not a table of the shards.", self._remedy)
        return manifest

    def _read_index(self, columns: list[str]) -> pa.Table:
        """Some columns of the index; the others take no memory."""
        read = partial(pq.read_table, columns=columns, memory_map=False)
        return self._reading("index.parquet", read)

    def _reading(self, name: str, read: Callable[[Path], Any]) -> Any:
        """`read` of a shard, or of a Parquet file with the sha256 of the manifest. Raises UserError if it is
        damaged."""
        path = self.directory / name
        try:
            return read(path)
        except MemoryError:  # of Arrow: the file has its sha256, so no damage requests the memory
            raise
        except (pa.ArrowException, OSError, ValueError, LookupError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # of the system, not of the content
                raise
            reason = str(error).splitlines()[0]
            raise UserError(f"{path} is damaged: {reason}.", self._remedy) from None

    def _require_sha256(self, path: Path, expected: str) -> None:
        if (digest := sha256_of(path)) != expected:
            raise UserError(
                f"{path} is damaged: it has sha256 {digest}, the manifest lists {expected}.", self._remedy
            )

    def _check(self, verify: bool) -> None:
        hashes = {
            **self.manifest["shards"],
            **self.manifest.get("extras", {}),
            "index.parquet": self.manifest["index"],
        }
        for name, expected in hashes.items():
            path = self.directory / name
            if not path.exists():
                raise UserError(f"{path} is missing.", self._remedy)
            size = self.manifest["shard_bytes"].get(name)
            if size is not None:
                with open(path, "rb") as file:
                    actual = file.seek(0, 2)
                    if actual != size:
                        raise UserError(
                            f"{path} has {actual:,} bytes, the manifest lists {size:,}.", self._remedy
                        )
                    file.seek(-len(_MAGIC), 2)
                    if file.read() != _MAGIC:
                        raise UserError(f"{path} lacks the end marker of an Arrow file.", self._remedy)
            if verify:
                self._require_sha256(path, expected)


def _places(memory: mmap.mmap) -> tuple[Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"]]:
    """Where each image of a mapped shard begins and ends. Raises ValueError, OSError, LookupError or
    pa.ArrowException for a damaged one."""
    buffer = pa.py_buffer(memory)
    reader = pa.ipc.open_file(buffer)
    begin: list[Int64[np.ndarray, " rows"]] = []
    end: list[Int64[np.ndarray, " rows"]] = []
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        _, offsets, values = batch.column("image").buffers()
        if offsets is None or values is None:
            raise ValueError("a batch has no images")
        ends = np.frombuffer(offsets, np.int64, batch.num_rows + 1) + (values.address - buffer.address)
        begin.append(ends[:-1])
        end.append(ends[1:])
    first, last = np.concatenate(begin), np.concatenate(end)
    if not ((first >= 0) & (first <= last) & (last <= len(memory))).all():
        raise ValueError("an image is outside of the file")
    return first, last
