"""Images of a user in tables or archives: what the sources `parquet` and `webdataset` share."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from unseen.data.heif import readable
from unseen.data.ingest.collection import Collection
from unseen.data.ingest.files.archive import is_hidden
from unseen.data.ingest.settings import ParquetSource, WebdatasetSource
from unseen.data.ingest.sources.folder import Directory, Row, divided, is_text, row_of, unread_files
from unseen.data.labels import Line, normal
from unseen.runtime.errors import UserError

_SPLITS = {"train": "train", "val": "train", "test": "test"}  # by the first letters of a name


class Packed:
    """The images of a source, as a reader adds them.

    files: the folder. shards: the names of its tables or archives, sorted.

    Raises UserError if the folder has no file with one of the `suffixes`.
    """

    def __init__(self, source: ParquetSource | WebdatasetSource, suffixes: tuple[str, ...]) -> None:
        self.source, self.root = source, Path(source.path)
        is_file = self.root.is_file()
        self.files = Directory(self.root.parent if is_file else self.root)
        self._names = [self.root.name] if is_file else self.files.names()
        self.shards = [
            name
            for name in self._names
            if name.lower().endswith(suffixes)
            and not is_hidden(name)
            and not PurePosixPath(name).name.startswith("cache-")  # of Hugging Face `datasets`
        ]
        if not self.shards:
            raise UserError(
                f"{self.root} contains no file with the suffix {', '.join(suffixes)}.",
                "Put the files there, or correct the path of the source.",
            )
        self._rows: list[Row] = []
        self._reads: dict[str, Callable[[], bytes]] = {}

    def path(self, shard: str) -> Path:
        return self.files.path / shard

    def add(self, shard: str, key: str, values: Mapping[str, Any], read: Callable[[], bytes]) -> None:
        """Adds an image. key: its name within the shard. values: label, and optionally split, is_query and
        is_gallery. read: its encoded bytes; it must pickle. Raises UserError for an invalid value."""
        place, name = f"{self.path(shard)}: {key}", f"{shard}/{key}"
        label = values.get("label")
        if not isinstance(label, int | str) or isinstance(label, bool) or not normal(str(label)):
            raise UserError(f"{place}: the label is {label!r}.", "Give every image an integer or a text.")
        if not is_text(name):
            raise UserError(f"{self.path(shard)}: the name {key!r} is not valid UTF-8.", "Rename it.")
        given = {column: normal(str(value)) for column, value in values.items() if value is not None}
        if self.source.split == "files":
            given["split"] = self._split_of(shard)
        self._rows.append(row_of(Line(place, given), name))
        self._reads[name] = read

    def collection(self) -> Collection:
        """The images, and the remarks on files that were not read."""
        pictures = divided(self._rows, self.source, str(self.root))
        known = {*self.shards, *self._reads}
        facts = unread_files([name for name in self._names if name not in known and not is_hidden(name)])
        return Collection(str(self.root), pictures, partial(_read, self._reads), facts)

    def _split_of(self, shard: str) -> str:
        for part in PurePosixPath(shard.lower()).parts[::-1]:
            for prefix, split in _SPLITS.items():
                if part.startswith(prefix):
                    return split
        raise UserError(
            f"{self.path(shard)}: the name does not begin with {', '.join(_SPLITS)}.",
            "Rename it, or set `split: classes` of the source.",
        )


def _read(reads: Mapping[str, Callable[[], bytes]], name: str) -> bytes:
    return readable(reads[name]())
