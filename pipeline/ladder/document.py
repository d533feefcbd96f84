"""Writes docs/ladder.md and its picture from the committed results.

python -m pipeline.ladder.document > docs/ladder.md
python -m pipeline.ladder.document --picture > docs/images/ladder.svg
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.ladder import adapt
from pipeline.ladder.picture import Panel, picture

RESULTS = Path(__file__).with_name("results.json")
_HEAD = """# The ladder on photos

Written by `python -m pipeline.ladder.document` from pipeline/ladder/results.json; do not edit.

Does training pay on 1,620 photos of products? `unseen ladder` measured the rungs with three networks on two
class-disjoint splits: half of the classes at random, and half of the product groups
(`pipeline/claims/grocery_groups.csv`). [catalogs](catalog.md#does-training-pay) explains the rungs and the
choice. The test classes train and choose nothing.

![Accuracy against CPU seconds](images/ladder.svg)

A filled point is the rung that held-out training classes chose. Bars are 95% intervals over classes.
"""


def load(path: Path = RESULTS) -> dict[str, Any]:
    """The ladders by network and split."""
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return results


def panels(results: dict[str, Any]) -> list[Panel]:
    """One panel for each network, the splits in rows."""
    cells = sorted(results.values(), key=lambda cell: (cell["split"] != "random", cell["network"]))
    return [Panel(f"{cell['network']}, {cell['split']}", cell["rungs"], cell["chosen"]) for cell in cells]


def goal(results: dict[str, Any]) -> dict[str, list[str]]:
    """The ladders that miss the goal, by its part: the chosen rung is significantly below `frozen`, or it is
    not significantly above while another rung is."""
    missed: dict[str, list[str]] = {"below": [], "not above": []}
    for name, cell in results.items():
        differences = {rung["name"]: rung["difference"] for rung in cell["rungs"] if rung["difference"]}
        chosen = differences.get(cell["chosen"]["name"])
        if chosen is not None and chosen["high"] < 0:
            missed["below"].append(name)
        if any(each["low"] > 0 for each in differences.values()) and not (chosen and chosen["low"] > 0):
            missed["not above"].append(name)
    return missed


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    return "\n".join([_HEAD, *_lines(results), ""])


def _lines(results: dict[str, Any]) -> Iterator[str]:
    cells = sorted(results.values(), key=lambda cell: (cell["split"] != "random", cell["network"]))
    test = cells[0]["rungs"][0]["test"]
    yield "## Results"
    yield ""
    yield (
        "Photos: Grocery Store (Klasson et al. 2019, MIT licence), 20 photos of each of 81 classes "
        "(those with the smallest sha256), 112 pixels on their shorter side, embedded at 128 pixels. About "
        f"{test['queries']} photos of {test['classes']} classes are test photos. Differences from `frozen` "
        "are paired, with classes resampled. CPU seconds are of one core, with features and the trainings of "
        "all folds; a rung that found its features in the cache has only the trainings."
    )
    yield ""
    yield "| network | split | rung | steps | held-out MAP@R | MAP@R | from `frozen` | Recall@1 | CPU s |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for cell in cells:
        for rung in cell["rungs"]:
            is_chosen = rung["name"] == cell["chosen"]["name"]
            name = f"**{rung['name']}**, chosen" if is_chosen else rung["name"]
            yield (
                f"| {cell['network']} | {cell['split']} | {name} | {rung['steps'] or ''} | "
                f"{100 * rung['validation']:.1f} | {100 * rung['test']['map_at_r']:.1f} | "
                f"{_span(rung['difference'])} | {100 * rung['test']['recall_at_1']:.1f} | "
                f"{rung['seconds']:.0f} |"
            )
    yield ""
    yield from _goal_lines(results)
    yield ""
    yield from _other_lines(cells)
    yield "## Settings of `adapt`"
    yield ""
    yield (
        f"The last quarter of the layers, {adapt.LENGTHS[0]} steps of {adapt.BATCH} photos, AdamW at "
        f"{adapt.RATE:g} for the last layer and {adapt.DECAY:g} times that of the layer behind it for each "
        f"other, a pull of {adapt.PULL:g} towards the published weights. The values were chosen by the MAP@R "
        "of EfficientNet-Lite0 and ViT-Tiny on two folds of held-out training classes of the random split. "
        "With a linear map W behind the network, and without the pull, held-out MAP@R was lower."
    )


def _goal_lines(results: dict[str, Any]) -> Iterator[str]:
    missed = goal(results)
    yield "## The goal"
    yield ""
    texts = {
        "below": "The chosen rung is never significantly below `frozen`",
        "not above": "It is significantly above `frozen` wherever a rung is",
    }
    for part, text in texts.items():
        yield f"- {text}: " + (f"missed on {', '.join(missed[part])}." if missed[part] else "reached.")


def _other_lines(cells: list[dict[str, Any]]) -> Iterator[str]:
    with_other = [cell for cell in cells if cell["rungs"][0].get("other")]
    if not with_other:
        return
    other = with_other[0]["rungs"][0]["other"]
    yield "## What training loses elsewhere"
    yield ""
    yield (
        f"MAP@R of the same models on {other['queries']:,} pictures of another kind, {other['classes']} "
        "classes of the built-in set (`--other`). Every rung is trained on photos of products alone."
    )
    yield ""
    yield "| network | split | `frozen` | " + " | ".join(_trained(with_other)) + " |"
    yield "| --- " * (3 + len(_trained(with_other))) + "|"
    for cell in with_other:
        rungs = {rung["name"]: rung for rung in cell["rungs"]}
        values = [_span(rungs[name]["other_difference"]) for name in _trained(with_other)]
        before = 100 * rungs["frozen"]["other"]["map_at_r"]
        yield f"| {cell['network']} | {cell['split']} | {before:.1f} | " + " | ".join(values) + " |"
    yield ""


def _trained(cells: list[dict[str, Any]]) -> list[str]:
    return [rung["name"] for rung in cells[0]["rungs"] if rung["steps"]]


def _span(difference: dict[str, float] | None) -> str:
    if difference is None:
        return ""
    low, middle, high = (100 * difference[key] for key in ("low", "difference", "high"))
    return f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    committed = load()
    sys.stdout.write(picture(panels(committed)) if "--picture" in sys.argv[1:] else markdown(committed))
