"""Remarks after a successful ingest: excluded images, files that were not read, folders that links name
twice, equal images with different labels, images that are far larger than the input of a network, sources
that DVC does not track."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unseen.data.ingest.releases import PUBLISHED
from unseen.data.ingest.settings import OwnSource, Source
from unseen.data.ingest.sources.folder import (
    CONVERT,
    enumerated,
    irregular_sentence,
    other_sentence,
    repeated_sentence,
    system_sentence,
    unlisted_sentence,
    unread_sentence,
)
from unseen.data.shards import Shards

_LARGE = 2  # the shorter side of an image / that of an input, from which decoding exceeds the need of a crop
_TRACKED = "data/raw"  # of the project: dvc.yaml names data/raw/<dataset>


def remarks(
    source: Source, manifest: dict[str, Any], output: Path, dataset: str, side: int = 0
) -> Iterator[str]:
    """Lines for the user. `manifest` is that of the shards in `output`; the project is the working
    directory. `side`: the longest to which a recipe resizes the shorter side of these images; 0: unknown."""
    summary = manifest["ingest"]
    if summary["skipped_images"]:
        names = enumerated([skipped["source"] for skipped in summary["skipped"]])
        classes = summary["dropped_classes"]
        dropped = f", and with them all images of class {enumerated(classes)}" if classes else ""
        yield (
            f"excluded damaged images: {summary['skipped_images']:,}: {names}{dropped}. "
            f"{output / 'manifest.json'} lists them under ingest.skipped."
        )
    if unread := manifest.get("unread_images"):
        yield (
            f"{unread_sentence(unread)} {CONVERT} {output / 'manifest.json'} lists them under unread_images."
        )
    if irregular := manifest.get("irregular_files"):
        yield (
            f"{irregular_sentence(irregular)} {output / 'manifest.json'} lists them under irregular_files."
        )
    if repeated := manifest.get("repeated_folders"):
        yield repeated_sentence(repeated)
    if folders := manifest.get("system_folders"):
        yield system_sentence(folders)
    if similar := manifest.get("similar_labels"):
        yield f"warning: {similar}"
    if unlisted := manifest.get("unlisted_images"):
        yield unlisted_sentence(unlisted["count"], unlisted["first"])
    if others := manifest.get("other_files"):
        yield other_sentence(others, manifest["other_file_names"])
    duplicates = manifest.get("duplicates", {})
    if across := duplicates.get("across_classes"):
        first, second = duplicates["pairs"][0]
        yield (
            f"{across:,} image{'s have' if across > 1 else ' has'} the same pixels as an image with another "
            f"label, such as {second} and {first}. Correct the labels. {output / 'manifest.json'} lists "
            "pairs under duplicates.pairs."
        )
    if side and isinstance(source, OwnSource) and summary["resize"] is None:
        median = int(np.median(Shards(output).sizes.min(axis=1)))
        if median > _LARGE * side:
            yield (
                f"the median of the shorter sides is {median:,} pixels, and the recipes read {side}: every "
                "step of a training decodes the large images. Smaller ones are stored with "
                f"`resize: {_LARGE * side}` under `ingest` in params.yaml."
            )
    for field in type(source).model_fields:
        path = getattr(source, field) if field == "path" or field in PUBLISHED else None
        if path is not None and not Path(os.path.abspath(path)).is_relative_to(os.path.abspath(_TRACKED)):
            command = f"dvc repro -f -s ingest@{dataset} && dvc repro"
            yield f"DVC does not track {path}. After a change there: {command}"
