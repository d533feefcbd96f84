"""Converts a source to shards: reads every picture, checks that it is complete, prepares it, and writes the
pictures in an order that depends only on their names."""

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from unseen.data.ingest.collection import Box, Collection, Picture, require_usable
from unseen.data.ingest.duplicates import Candidates, summary
from unseen.data.ingest.files.tarball import scratch_directory
from unseen.data.ingest.prepare import Prepared, pixels_of, prepare, stored_box
from unseen.data.ingest.settings import IngestSettings, Source
from unseen.data.ingest.workers import Damaged, Job, outcomes
from unseen.data.shard_writer import ShardWriter
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_directory
from unseen.runtime.progress import track


def collection_of(source: Source, scratch: Path) -> Collection:
    """Lists the pictures of a source, each class with its split. Raises UserError if the files are not the
    published ones.

    scratch: a directory for files that the source extracts from archives. It must exist as long as pictures
    are read.
    """
    function = import_module(source.module).collection
    collection: Collection = function(*(source, scratch)[: len(signature(function).parameters)])
    return collection


def ingest(
    source: Source, settings: IngestSettings, output: Path, dataset: str, processes: int | None = None
) -> dict[str, Any]:
    """Writes the shards of `dataset` to the directory `output` and returns their manifest. `output` is
    created complete or not at all.

    Equal pictures give equal bytes: the result depends neither on the order of files on the disk nor on
    `processes`. Memory contains a few dozen pictures, one record batch, and about 1 kB per picture: its
    entries in the list, in the index and among the fingerprints. Candidates for duplicates are read twice. A
    damaged picture stops the run or is excluded and listed (settings.on_error). A class without any readable
    picture is excluded and listed.

    Raises UserError for a damaged picture, an unusable set (collection.require_usable), an excluded picture
    that the set's ground truth names, and a full disk.
    """
    with scratch_directory(output) as scratch:
        collection = collection_of(source, scratch)
        pictures = collection.in_order()
        if collection.by_class:
            require_usable(pictures, collection.location)
        return write(collection, pictures, settings, output, dataset, processes)


@dataclass
class _Written:
    """The record of the rows that were written and the pictures that were excluded."""

    class_names: list[str] = field(default_factory=list)  # by label
    labels: dict[str, int] = field(default_factory=dict)  # by class name
    pictures: list[Picture] = field(default_factory=list)  # by row id
    row_ids: dict[str, int] = field(default_factory=dict)  # by source
    candidates: Candidates = field(default_factory=Candidates)
    formats: Counter[str] = field(default_factory=Counter)
    upright: int = 0
    resized: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)

    def add(self, writer: ShardWriter, picture: Picture, prepared: Prepared, box: Box | None) -> None:
        """Writes one row. Rows are sorted by class, so labels are numbered in row order."""
        if picture.class_name not in self.labels:
            self.labels[picture.class_name] = len(self.class_names)
            self.class_names.append(picture.class_name)
        row_id = writer.add(
            prepared.image,
            self.labels[picture.class_name],
            picture.split,
            picture.source,
            prepared.width,
            prepared.height,
            is_query=picture.is_query,
            is_gallery=picture.is_gallery,
            group=picture.group,
            box=box,
        )
        self.row_ids[picture.source] = row_id
        self.pictures.append(picture)
        self.candidates.add(row_id, prepared.fingerprint)
        self.formats[prepared.format] += 1
        self.upright += prepared.upright
        self.resized += prepared.resized


def write(
    collection: Collection,
    pictures: list[Picture],
    settings: IngestSettings,
    output: Path,
    dataset: str,
    processes: int | None = None,
) -> dict[str, Any]:
    """The second half of `ingest`, for a collection that is already listed and in row order."""
    job = Job(collection.read, functools.partial(prepare, resize=settings.resize, quality=settings.quality))
    written = _Written()
    with (
        atomic_directory(output) as directory,
        ShardWriter(directory, written.class_names, settings.shard_mebibytes * 2**20) as writer,
    ):
        results = outcomes([picture.source for picture in pictures], job, processes)
        pairs = zip(pictures, results, strict=True)
        for picture, result in track(pairs, f"ingest {dataset}", "images", len(pictures)):
            if not isinstance(result, Damaged):
                written.add(writer, picture, result, _box(picture, result, collection.location))
            elif settings.on_error == "skip":
                written.skipped.append({"source": picture.source, "reason": result.reason})
            else:
                raise UserError(
                    f"{collection.location}: {picture.source} is not a complete image: {result.reason}.",
                    "Replace or remove that file, or exclude damaged files with ingest.on_error: skip.",
                )
        facts = dict(collection.facts)
        if collection.by_class:
            location = collection.location
            if written.skipped:
                location += f" without its {len(written.skipped)} damaged images"
            facts["single_image_classes"] = require_usable(written.pictures, location)
        if collection.extras:
            facts["extras"] = _write_extras(collection, written.row_ids, directory)
        candidates = [written.pictures[row] for row in written.candidates.rows()]
        return writer.finish(
            {
                **facts,
                "dataset": dataset,
                "duplicates": _duplicates(candidates, collection, dataset, processes),
                "ingest": {
                    "resize": settings.resize,
                    "quality": settings.quality,
                    "on_error": settings.on_error,
                    "formats": dict(written.formats),
                    "upright": written.upright,
                    "resized": written.resized,
                    "skipped": written.skipped,
                    "skipped_images": len(written.skipped),
                    "dropped_classes": sorted({p.class_name for p in pictures} - written.labels.keys()),
                },
            }
        )


def _box(picture: Picture, prepared: Prepared, location: str) -> Box | None:
    """The box of a picture in pixels of the stored image."""
    try:
        return picture.box and stored_box(picture.box, prepared)
    except ValueError as error:
        raise UserError(
            f"{location}: {picture.source}: {error}.",
            "The ground truth and the images are not of the same edition: fetch both again.",
        ) from None


def _duplicates(
    candidates: list[Picture], collection: Collection, dataset: str, processes: int | None
) -> dict[str, Any]:
    """Compares the candidates by all their pixels."""

    def digests() -> Iterator[tuple[Picture, bytes]]:
        job = Job(collection.read, pixels_of)
        results = outcomes([picture.source for picture in candidates], job, processes)
        pairs = zip(candidates, results, strict=True)
        for picture, digest in track(pairs, f"compare {dataset}", "images", len(candidates)):
            if isinstance(digest, Damaged):
                raise UserError(
                    f"{collection.location}: {picture.source} was readable before and now is not: "
                    f"{digest.reason}.",
                    "Run ingest again while no process writes there.",
                )
            yield picture, digest

    return summary(digests() if candidates else ())


def _write_extras(collection: Collection, row_ids: dict[str, int], directory: Path) -> dict[str, str]:
    """Writes the tables of `collection` and returns the sha256 of each file."""

    def row_of(source: str) -> int:
        if source not in row_ids:
            raise UserError(
                f"{collection.location}: its ground truth names {source}, which was excluded.",
                "Replace that image, or fetch the set again.",
            )
        return row_ids[source]

    digests = {}
    for name, table in sorted(collection.extras.items()):
        path = directory / f"{name}.parquet"
        pq.write_table(table(row_of), path)
        digests[path.name] = sha256_of(path)
    return digests
