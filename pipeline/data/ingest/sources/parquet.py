"""Images of a user in Parquet or Arrow tables, such as those of Hugging Face `datasets`: files of the hub
(`data/train-00000-of-00001.parquet`) and folders of `save_to_disk`.

The column of images contains encoded bytes, paths relative to the folder, or struct<bytes, path>. Integer
labels have the names of a ClassLabel, if the schema gives them. The bytes are written once into one scratch
file, because rows are read in another order than that of the tables.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from unseen.data.ingest.collection import Collection
from unseen.data.ingest.files.archive import Slices, leaves_its_folder
from unseen.data.ingest.settings import ParquetSource
from unseen.data.ingest.sources.packed import Packed
from unseen.data.tables import TABLES, batches, read_schema
from unseen.runtime.errors import UserError
from unseen.runtime.files import unwritable_is_an_error

ROWS = 64  # per read
_OPTIONAL = ("split", "is_query", "is_gallery")
_REMEDY = "Write the table again."


def collection(source: ParquetSource, scratch: Path) -> Collection:
    """The images of all tables. Raises UserError for a table that is damaged or lacks a column, and for an
    image without bytes or with a path that leaves the folder."""
    packed = Packed(source, TABLES)
    images = scratch / "images"
    slices = Slices(images)
    with unwritable_is_an_error(images), open(images, "wb") as sink:
        for shard in packed.shards:
            for key, values, image in _rows(packed.path(shard), source, [source.images]):
                if isinstance(image, str):
                    packed.add(shard, key, values, partial(packed.files.read, image))
                else:
                    packed.add(shard, key, values, partial(slices, sink.tell(), len(image)))
                    sink.write(image)
    return packed.collection()


def listed(source: ParquetSource) -> Collection:
    """The images as a list of which none can be read: the column of images is not. Raises as `collection`
    does."""
    packed = Packed(source, TABLES)
    for shard in packed.shards:
        for key, values, _ in _rows(packed.path(shard), source, []):
            packed.add(shard, key, values, bytes)
    return packed.collection()


def _rows(
    path: Path, source: ParquetSource, images: list[str]
) -> Iterator[tuple[str, dict[str, Any], bytes | str]]:
    """Key, label with optional values, and image of each row. images: the column of images; empty: each image
    is empty."""
    schema = read_schema(path, _REMEDY)
    for name in (source.images, source.labels):
        if schema.names.count(name) != 1:
            raise UserError(
                f"{path} has {schema.names.count(name)} columns {name}; its columns are "
                f"{', '.join(schema.names)}.",
                "Set `images` and `labels` of the source to the names of columns.",
            )
    columns = [name for name in _OPTIONAL if name in schema.names]
    names, row = _class_names(schema, source.labels), 0
    for batch in batches(path, [*images, source.labels, *columns], ROWS, _REMEDY):
        for values in batch.to_pylist():
            label = values[source.labels]
            if isinstance(label, int) and 0 <= label < len(names):
                label = names[label]
            given = {name: values[name] for name in columns} | {"label": label}
            yield f"{row:09d}", given, _image(values[source.images], path, row) if images else ""
            row += 1


def _image(image: Any, path: Path, row: int) -> bytes | str:
    """The bytes of an image, or its path."""
    if isinstance(image, dict):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, bytes) or (isinstance(image, str) and image and not leaves_its_folder(image)):
        return image
    raise UserError(
        f"{path}: the image of row {row} is {image!r}.",
        "Write its bytes, or its path relative to the folder of the tables.",
    )


def _class_names(schema: pa.Schema, column: str) -> list[str]:
    """The names of a ClassLabel; empty if the schema gives none."""
    try:
        features: Any = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return [str(name) for name in features[column]["names"]]
    except (LookupError, TypeError, ValueError):
        return []
