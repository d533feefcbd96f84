"""A source becomes shards: every picture is read, proven whole, prepared, and written in an order that
depends on names alone."""

import functools
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.config.dataset import IngestSettings, Source
from pipeline.data.shards import ShardWriter
from pipeline.ingest.collection import Collection, Picture, require_usable
from pipeline.ingest.duplicates import Proposals, summary
from pipeline.ingest.files.tarball import scratch_directory
from pipeline.ingest.prepare import pixels_of, prepare, stored_box
from pipeline.ingest.workers import Damaged, Job, outcomes
from pipeline.runtime.digest import sha256_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory
from pipeline.runtime.progress import track


def gather(source: Source, scratch: Path) -> Collection:
    """The pictures of a source, each class with its split. Raises UserError where the files are not as
    published.

    scratch: a directory for what a source takes out of archives; it must stay while pictures are read.
    """
    collection: Collection = import_module(source.module).collection(source, scratch)
    return collection


def ingest(
    source: Source, settings: IngestSettings, output: Path, dataset: str, processes: int | None = None
) -> dict[str, Any]:
    """Writes the shards of `dataset` to the directory `output`, which appears whole or not at all, and
    returns their manifest.

    Same pictures, same bytes: neither the order of files on the disk nor `processes` matters. Memory holds a
    few dozen pictures, one record batch, and 32 bytes per picture; pictures that may be duplicates are read
    once more. A damaged picture stops the run, or is left out and listed (settings.on_error); a class that
    loses all its pictures is dropped and listed.

    Raises UserError for a damaged picture, a set that is unusable (collection.require_usable), a left-out
    picture that the set's ground truth names, and a full disk.
    """
    with scratch_directory(output) as scratch:
        collection = gather(source, scratch)
        pictures = collection.in_order()
        if collection.by_class:
            require_usable(pictures, collection.where)
        return write(collection, pictures, settings, output, dataset, processes)


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
    labels: dict[str, int] = {}
    class_names: list[str] = []
    stored: list[Picture] = []
    rows: dict[str, int] = {}
    skipped: list[dict[str, str]] = []
    changed: Counter[str] = Counter()
    formats: Counter[str] = Counter()
    proposals = Proposals()
    with (
        atomic_directory(output) as aside,
        ShardWriter(aside, class_names, settings.shard_mebibytes * 2**20) as writer,
    ):
        done = outcomes([picture.source for picture in pictures], job, processes)
        for picture, result in track(
            zip(pictures, done, strict=True), f"ingest {dataset}", "images", len(pictures)
        ):
            if isinstance(result, Damaged):
                if settings.on_error == "stop":
                    raise UserError(
                        f"{collection.where}: {picture.source} is no whole image: {result.reason}.",
                        "Replace or remove that file, or leave such files out with ingest.on_error: skip.",
                    )
                skipped.append({"source": picture.source, "reason": result.reason})
                continue
            if (
                picture.class_name not in labels
            ):  # rows come class by class, so labels follow the order of names
                labels[picture.class_name] = len(class_names)
                class_names.append(picture.class_name)
            try:
                box = picture.box and stored_box(picture.box, result)
            except ValueError as error:
                raise UserError(
                    f"{collection.where}: {picture.source}: {error}.",
                    "The ground truth and the images are of one edition only.",
                ) from None
            rows[picture.source] = writer.add(
                result.image,
                labels[picture.class_name],
                picture.split,
                picture.source,
                result.width,
                result.height,
                is_query=picture.is_query,
                is_gallery=picture.is_gallery,
                group=picture.group,
                box=box,
            )
            stored.append(picture)
            proposals.see(rows[picture.source], result.fingerprint)
            formats[result.format] += 1
            changed["upright"] += result.upright
            changed["resized"] += result.resized
        found: dict[str, Any] = {}
        if collection.by_class:
            where = (
                f"{collection.where} without its {len(skipped)} damaged images"
                if skipped
                else collection.where
            )
            found["single_image_classes"] = require_usable(stored, where)
        if collection.extras:
            found["extras"] = _write_extras(collection, rows, aside)
        return writer.finish(
            {
                **collection.facts,
                **found,
                "dataset": dataset,
                "duplicates": _duplicates(
                    [stored[row] for row in proposals.rows()], collection, dataset, processes
                ),
                "ingest": {
                    "resize": settings.resize,
                    "quality": settings.quality,
                    "on_error": settings.on_error,
                    "formats": dict(formats),
                    "upright": changed["upright"],
                    "resized": changed["resized"],
                    "skipped": skipped,
                    "skipped_images": len(skipped),
                    "dropped_classes": sorted({p.class_name for p in pictures} - labels.keys()),
                },
            }
        )


def _duplicates(
    alike: list[Picture], collection: Collection, dataset: str, processes: int | None
) -> dict[str, Any]:
    """Decides among the pictures that look alike, by all their pixels."""

    def decided() -> Iterator[tuple[Picture, bytes]]:
        done = outcomes([picture.source for picture in alike], Job(collection.read, pixels_of), processes)
        for picture, pixels in track(
            zip(alike, done, strict=True), f"compare {dataset}", "images", len(alike)
        ):
            if isinstance(pixels, Damaged):
                raise UserError(
                    f"{collection.where}: {picture.source} was read before, and now cannot be: "
                    f"{pixels.reason}.",
                    "Ingest again while nothing writes there.",
                )
            yield picture, pixels

    return summary(decided() if alike else ())


def _write_extras(collection: Collection, rows: dict[str, int], directory: Path) -> dict[str, str]:
    """Writes the tables of `collection` and returns the sha256 of each file."""

    def row_of(source: str) -> int:
        if source not in rows:
            raise UserError(
                f"{collection.where}: its ground truth names {source}, which was left out.",
                "Replace that image, or fetch the set again.",
            )
        return rows[source]

    written = {}
    for name, table in sorted(collection.extras.items()):
        path = directory / f"{name}.parquet"
        pq.write_table(table(row_of), path)
        written[path.name] = sha256_of(path)
    return written
