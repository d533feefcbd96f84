"""Remarks after a successful ingest: images that were left out, sources that DVC does not watch."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config.dataset import Source
from pipeline.ingest.releases import PUBLISHED
from pipeline.ingest.sources.folder import CONVERT, unread_sentence

_WATCHED = "data/raw"  # of the project: dvc.yaml names data/raw/<dataset>


def remarks(source: Source, manifest: dict[str, Any], output: Path, dataset: str) -> Iterator[str]:
    """Lines for a person. `manifest` is that of the shards in `output`; the project is the working
    directory."""
    done = manifest["ingest"]
    if done["skipped_images"]:
        lost = f" (and {len(done['dropped_classes']):,} classes with them)" if done["dropped_classes"] else ""
        yield (
            f"damaged images left out: {done['skipped_images']:,}{lost}. {output / 'manifest.json'} lists "
            f"them under ingest.skipped."
        )
    if unread := manifest.get("unread_images"):
        yield (
            f"{unread_sentence(unread)} {CONVERT} {output / 'manifest.json'} lists them under unread_images."
        )
    for field in type(source).model_fields:
        place = getattr(source, field) if field == "path" or field in PUBLISHED else None
        if place is not None and not Path(os.path.abspath(place)).is_relative_to(os.path.abspath(_WATCHED)):
            yield (
                f"DVC does not watch {place}. After a change there: dvc repro -f -s ingest@{dataset} && dvc "
                f"repro"
            )
