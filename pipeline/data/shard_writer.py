"""Writes a data set as shards, in the format that pipeline/data/shards.py describes and reads."""

import hashlib
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unseen.data.shard_schema import INDEX, OPTIONAL, SCHEMA, SCHEMA_VERSION, SPLITS
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json

BATCH_ROWS = 256
_CHUNK_ROWS = 4096  # rows of the index that are Python objects before they become arrays
_GROUP_ROWS = 1024 * 1024  # of the index: pyarrow's default
_BATCH_BYTES = 32 * 2**20  # a batch of large images ends earlier, to limit memory
_BATCH_OVERHEAD = 4096  # upper bound of the bytes of a batch in addition to its values
_FILE_OVERHEAD = 8192  # the same for schema and footer
_COLUMNS = [field for field in (*INDEX, *OPTIONAL) if field.name != "class_name"]  # of `ShardWriter.add`


class ShardWriter:
    """Writes the files of one data set into an existing empty directory, with rows in row_id order.

    `class_names[label]` is the name of a class; the list may be extended until `finish`. A shard has at most
    `shard_bytes`. Memory contains one batch and the index, as Arrow arrays.

        with atomic_directory(Path("data/shards/mine")) as aside:
            with ShardWriter(aside, ["cat", "dog"], shard_bytes=2**28) as writer:
                writer.add(jpeg, label=0, split="train", source="cat/1.jpg", width=120, height=90)
                writer.finish({"dataset": "mine"})
    """

    def __init__(self, directory: Path, class_names: list[str], shard_bytes: int) -> None:
        self.directory, self.class_names, self.shard_bytes = Path(directory), class_names, shard_bytes
        self.rows = 0
        self._recent: dict[str, list[Any]] = {field.name: [] for field in _COLUMNS}  # of the last rows
        self._index: dict[str, list[pa.Array]] = {field.name: [] for field in _COLUMNS}  # of all others
        self._split_of: dict[int, str] = {}
        self._images = Counter[str]()  # by split
        self._shard_rows: list[int] = []
        self._pending: list[tuple[int, bytes, int, str, str]] = []
        self._pending_bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self._shard = -1
        self._batch = 0
        self._written = 0  # upper bound of the size of the open shard without the pending rows

    def add(
        self,
        image: bytes,
        label: int,
        split: str,
        source: str,
        width: int,
        height: int,
        is_query: bool = True,
        is_gallery: bool = True,
        group: str | None = None,
        box: tuple[float, float, float, float] | None = None,
    ) -> int:
        """Appends a row and returns its id.

        Raises UserError for an image that is larger than a shard, and ValueError for a class in two splits.
        """
        if split not in SPLITS or self._split_of.setdefault(label, split) != split:
            earlier = self._split_of.get(label)
            raise ValueError(
                f"{source}: the row has split {split!r}, class {label} has split {earlier!r}; "
                f"splits are {SPLITS}"
            )
        size = len(image) + len(source.encode()) + len(split) + 40
        if size + _BATCH_OVERHEAD + _FILE_OVERHEAD > self.shard_bytes:
            raise UserError(
                f"{source} has {len(image) / 2**20:.1f} MiB, "
                f"but a shard has at most {self.shard_bytes / 2**20:.0f} MiB.",
                "Raise ingest.shard_mebibytes, or shrink images at ingest (ingest.resize).",
            )
        if (
            self._writer is not None
            and self._written + self._pending_bytes + size + _BATCH_OVERHEAD > self.shard_bytes
        ):
            self._close_shard()
        if len(self._pending) == BATCH_ROWS or (self._pending and self._pending_bytes + size > _BATCH_BYTES):
            self._flush()
        if self._writer is None:
            self._open_shard()
        row = self.rows
        place = (self._shard, self._batch, len(self._pending))
        digest = hashlib.sha256(image).hexdigest()
        values = (row, label, split, source, digest, width, height, *place, is_query, is_gallery, group, box)
        for column, value in zip(self._recent.values(), values, strict=True):
            column.append(value)
        if len(self._recent["row_id"]) == _CHUNK_ROWS:
            self._convert()
        self._images[split] += 1
        self._shard_rows[-1] += 1
        self._pending.append((row, image, label, split, source))
        self._pending_bytes += size
        self.rows += 1
        return row

    def finish(self, extra_manifest: dict[str, Any]) -> dict[str, Any]:
        """Closes the last shard, writes index and manifest, and returns the manifest.

        The keys of `extra_manifest` override those of the manifest.
        """
        self._close_shard()
        self._convert()
        names = pa.array(self.class_names, pa.string())
        self._index["class_name"] = [names.take(labels) for labels in self._index["label"]]
        optional = (f for f in OPTIONAL if any(chunk.type == f.type for chunk in self._index[f.name]))
        schema = pa.schema([*INDEX, *optional])
        index = pa.table([self._column(field) for field in schema], schema=schema)
        with pq.ParquetWriter(self.directory / "index.parquet", schema) as writer:
            for first in range(0, max(1, self.rows), _GROUP_ROWS):
                # The pages of a group depend on the chunks of its columns: one.
                writer.write_table(index.slice(first, _GROUP_ROWS).combine_chunks(), _GROUP_ROWS)
        classes = Counter(self._split_of.values())
        shards = sorted(self.directory.glob("shard-*.arrow"))
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "counts": {split: {"images": self._images[split], "classes": classes[split]} for split in SPLITS},
            "class_names": list(self.class_names),
            "shards": {path.name: sha256_of(path) for path in shards},
            "shard_bytes": {path.name: path.stat().st_size for path in shards},
            "shard_rows": {path.name: rows for path, rows in zip(shards, self._shard_rows, strict=True)},
            "index": sha256_of(self.directory / "index.parquet"),
            **extra_manifest,
        }
        write_json(self.directory / "manifest.json", manifest)
        return manifest

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._pending.clear()
        if self._sink is not None:
            self._sink.close()

    def _open_shard(self) -> None:
        self._shard += 1
        self._shard_rows.append(0)
        self._batch = 0
        self._written = _FILE_OVERHEAD
        path = self.directory / f"shard-{self._shard:05d}.arrow"
        self._sink = open(path, "wb")  # noqa: SIM115 - open until the shard is full
        self._writer = pa.ipc.new_file(self._sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression=None))

    def _convert(self) -> None:
        """Appends the last rows to the index. Chunks of an optional column without values have type null,
        which takes no memory."""
        for field in _COLUMNS:
            values = self._recent[field.name]
            has_values = field in INDEX or values.count(None) < len(values)
            chunk = pa.array(values, field.type) if has_values else pa.nulls(len(values))
            self._index[field.name].append(chunk)
            values.clear()

    def _column(self, field: pa.Field) -> pa.ChunkedArray:
        return pa.chunked_array([chunk.cast(field.type) for chunk in self._index[field.name]], field.type)

    def _flush(self) -> None:
        columns = zip(zip(*self._pending, strict=True), SCHEMA, strict=True)
        arrays = [pa.array(column, field.type) for column, field in columns]
        self._writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
        self._written += self._pending_bytes + _BATCH_OVERHEAD
        self._pending.clear()
        self._pending_bytes = 0
        self._batch += 1

    def _close_shard(self) -> None:
        if self._writer is None:
            return
        if self._pending:
            self._flush()
        self._writer.close()
        self._sink.close()
        self._writer = self._sink = None
