"""The images of the data set: counts of the shards, and what ingest changed, excluded and found to be
duplicate.
"""

from typing import Any

import numpy as np

from unseen.data.shards import Shards
from unseen.report.dataset import DataSet
from unseen.report.words import counted

# lists of the manifest: what ingest did not read, with its noun
_LEFT_OUT = {
    "unread_images": ("Images in formats that are not read", "file"),
    "irregular_files": ("Pipes and devices", "file"),
    "repeated_folders": ("Folders that a link names again, not read twice", "folder"),
}
MAX_OPEN = 8  # lines; a longer list is collapsed


def content(dataset: DataSet) -> dict[str, Any]:
    shards = dataset.shards
    ingest, duplicates = shards.manifest.get("ingest", {}), shards.manifest.get("duplicates", {})
    skipped = ingest.get("skipped", [])
    formats = ", ".join(f"{name} {count:,}" for name, count in sorted(ingest.get("formats", {}).items()))
    upright, skipped_images = ingest.get("upright"), counted(len(skipped), "damaged image")
    facts = [
        (
            "Resized at ingest",
            f"shorter side to {ingest['resize']} pixels" if ingest.get("resize") else "no, original bytes",
        ),
        ("Formats", formats or "–"),
        ("Rotated upright", f"{counted(upright, 'image')} (EXIF)" if upright else "none"),
        ("Skipped", f"{skipped_images}, listed below" if skipped else "none"),
        ("Duplicates", _duplicates(duplicates)),
        ("Lone test images", _lone(dataset)),
    ]
    manifest = shards.manifest
    for key, (title, noun) in _LEFT_OUT.items():
        if names := manifest.get(key):
            facts.append((title, _named(names, len(names), noun)))
    if unlisted := manifest.get("unlisted_images"):
        facts.append(("Images that are not in the CSV", _named(unlisted["first"], unlisted["count"])))
    if others := manifest.get("other_files"):
        facts.append(("Other files", _named(manifest.get("other_file_names", []), sum(others.values()))))
    if ingest.get("dropped_classes"):
        facts.append(("Dropped classes", ", ".join(ingest["dropped_classes"])))
    return {
        "splits": [_split(shards, split) for split in ("train", "test")],
        "facts": facts,
        "skipped": skipped,
        "skipped_open": len(skipped) <= MAX_OPEN,
        "pairs": _pairs(shards, duplicates),
    }


def _named(names: list[str], count: int, noun: str = "file") -> str:
    """The number of files and the first names."""
    first = names[:MAX_OPEN]
    more = ", ..." if count > len(first) else ""
    return f"{counted(count, noun)}: {', '.join(first)}{more}"


def _split(shards: Shards, split: str) -> tuple[str, ...]:
    """Name, images, classes, images per class and median size of a split."""
    rows, count = shards.rows(split), shards.manifest["counts"][split]
    sizes = np.unique(shards.labels[rows], return_counts=True)[1]
    width, height = np.median(shards.sizes[rows], axis=0)
    smallest, largest = sizes.min(), sizes.max()
    span = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    return split, f"{count['images']:,}", f"{count['classes']:,}", span, f"{width:.0f} × {height:.0f}"


def _pairs(shards: Shards, duplicates: dict[str, Any]) -> list[dict[str, Any]]:
    """The pairs of files that ingest names, pairs across classes first: one of the two may have the wrong
    class.
    """
    label = dict(zip(shards.sources, shards.labels.tolist(), strict=True))
    kinds: dict[bool, list[list[str]]] = {True: [], False: []}
    for pair in duplicates.get("pairs", []):
        kinds[label[pair[0]] != label[pair[1]]].append(pair)
    titles = {True: "Duplicates across classes", False: "Duplicates within a class"}
    return [
        {"title": titles[across], "open": across and len(pairs) <= MAX_OPEN, "pairs": pairs}
        for across, pairs in kinds.items()
        if pairs
    ]


def _duplicates(duplicates: dict[str, Any]) -> str:
    if not duplicates.get("images"):
        return "none"
    parts = [f"{counted(duplicates['images'], 'image')} with the same pixels as another image"]
    for key, text in (("across_classes", "across classes"), ("across_splits", "across splits")):
        if duplicates.get(key):
            parts.append(f"{duplicates[key]:,} {text}")
    named = len(duplicates.get("pairs", []))
    if named:
        parts.append(
            "listed below" if named == duplicates["images"] else f"the first {named} are listed below"
        )
    return ", ".join(parts)


def _lone(dataset: DataSet) -> str:
    lone = dataset.runs()[0].metrics["lone_queries"]
    if not lone:
        return "none"
    return f"{counted(lone, 'image')} without another image of the class, excluded from all averages"
