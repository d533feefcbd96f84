"""What the page shows as evidence for one data set: galleries, what ingest did, recipes and hashes."""

from typing import Any

import numpy as np

from pipeline.data.shards import Shards
from pipeline.report.gallery import gallery, thumbnails
from pipeline.report.inputs import Inputs
from pipeline.report.outcome import Shown, headline_of
from pipeline.report.provenance import chain
from pipeline.report.summary import Results, verdict
from pipeline.report.words import counted, name_of, number, percent

OPEN = 8  # files that are named without being asked for


def gallery_section(
    inputs: Inputs, dataset: str, found: Results, shown: list[Shown], queries: int, neighbours: int, thumbnail: int
) -> list[dict[str, Any]]:
    """One gallery per method, of its first seed; that of the leading method is open."""
    shards = inputs.shards[dataset]
    small = thumbnails(shards, thumbnail)
    headline = headline_of(found)
    best = verdict(found, headline)
    sections = []
    for method in shown:
        run = inputs.of(dataset, method.name)[0]
        value = found.of(method.name, headline)
        note = f"{name_of(headline)} {percent(value.value)}" if value else ""
        sections.append(
            {
                "method": method,
                "open": best is not None and best.best == method.name,
                "note": f"{note}, seed {run.seed}" if len(inputs.seeds) > 1 else note,
                "groups": gallery(shards, run.queries, run.neighbours, queries, neighbours, small),
            }
        )
    return sections


def data_section(inputs: Inputs, dataset: str) -> dict[str, Any]:
    """Counts of the shards, and what ingest changed, left out and found twice."""
    shards = inputs.shards[dataset]
    manifest = shards.manifest
    splits = []
    for split in ("train", "test"):
        rows = shards.rows(split)
        sizes = np.unique(shards.labels[rows], return_counts=True)[1]
        width, height = np.median(shards.sizes[rows], axis=0)
        count = manifest["counts"][split]
        span = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
        splits.append((split, f"{count['images']:,}", f"{count['classes']:,}", span, f"{width:.0f} × {height:.0f}"))
    done, twice = manifest.get("ingest", {}), manifest.get("duplicates", {})
    skipped = done.get("skipped", [])
    resize = f"shorter side to {done['resize']} pixels" if done.get("resize") else "no, bytes kept"
    facts = [
        ("Shrunk at ingest", resize),
        ("Formats", ", ".join(f"{name} {count:,}" for name, count in sorted(done.get("formats", {}).items())) or "–"),
        ("Turned upright", f"{counted(done['upright'], 'image')} (EXIF)" if done.get("upright") else "none"),
        ("Skipped", f"{counted(len(skipped), 'damaged image')}, named below" if skipped else "none"),
        ("Duplicates", _duplicates(twice)),
        ("Lone test images", _lone(inputs, dataset)),
    ]
    if done.get("dropped_classes"):
        facts.append(("Dropped classes", ", ".join(done["dropped_classes"])))
    return {"splits": splits, "ingest": facts, "skipped": skipped, "open": len(skipped) <= OPEN, "twice": _pairs(shards, twice)}


def _pairs(shards: Shards, twice: dict[str, Any]) -> list[dict[str, Any]]:
    """The pairs of files that ingest names, those across classes first: one of the two is in the wrong class, or shows two."""
    label = dict(zip(shards.sources, shards.labels.tolist(), strict=True))
    kinds: dict[bool, list[list[str]]] = {True: [], False: []}
    for pair in twice.get("pairs", []):
        kinds[label[pair[0]] != label[pair[1]]].append(pair)
    titles = {True: "Duplicates across classes", False: "Duplicates within a class"}
    return [{"title": titles[across], "open": across and len(pairs) <= OPEN, "pairs": pairs} for across, pairs in kinds.items() if pairs]


def _duplicates(twice: dict[str, Any]) -> str:
    if not twice.get("images"):
        return "none"
    parts = [f"{counted(twice['images'], 'image')} with the pixels of another"]
    parts += [f"{twice[key]:,} {text}" for key, text in (("across_classes", "across classes"), ("across_splits", "across splits")) if twice.get(key)]
    named = len(twice.get("pairs", []))
    return ", ".join(parts) + ("" if not named else ", named below" if named == twice["images"] else f", the first {named} named below")


def _lone(inputs: Inputs, dataset: str) -> str:
    lone = inputs.of(dataset)[0].metrics["lone_queries"]
    return f"{counted(lone, 'image')} without another one of the class: nothing to find, left out of every average" if lone else "none"


def provenance_section(inputs: Inputs, dataset: str, shown: list[Shown]) -> dict[str, Any]:
    """Hashes of every run, the resolved recipe of every method, the declared protocol."""
    chains = [(run, chain(inputs, run)) for run in inputs.of(dataset)]
    columns = [name for name in chains[0][1] if name in ("shards", "recipe", "weights", "test embeddings", "protocol")]
    several = len(inputs.seeds) > 1
    rows = [
        {"name": f"{run.method}, seed {run.seed}" if several else run.method, "digests": [found[name] for name in columns]} for run, found in chains
    ]
    protocols = len({found["protocol"] for _, found in chains})
    recipes = []
    for method in shown:
        run, found = next((run, found) for run, found in chains if run.method == method.name)
        settings = flat(run.recipe.get("recipe", run.recipe))
        half = (len(settings) + 1) // 2
        backbone = dict(settings).get("backbone.name", "")
        iterations = dict(settings).get("training.iterations", "")
        recipes.append(
            {
                "method": method,
                "note": f"{backbone}, {iterations} iterations" if backbone and iterations else "",
                "left": settings[:half],
                "right": settings[half:],
                "hashes": list(found.items()),
            }
        )
    protocol = [(key.replace("_", " "), text(value)) for key, value in inputs.of(dataset)[0].protocol.items()]
    return {
        "provenance": {"columns": columns, "rows": rows, "mixed": protocols if protocols > 1 else 0},
        "recipes": recipes,
        "protocol": protocol,
    }


def flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """(dotted key, value as text) of a nested recipe, in its order."""
    if isinstance(value, dict) and value:
        return [pair for key, inner in value.items() for pair in flat(inner, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, text(value))]


def text(value: Any) -> str:
    """A setting as YAML writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return number(value) if isinstance(value, int) and abs(value) >= 10_000 else str(value) if value != {} else "none"
