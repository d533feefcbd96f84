"""The command `unseen ladder`."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from pipeline.ladder.ladder import Plan, Result, Rung, ladder
from pipeline.methods.pretrained import Network, default_network
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import write_json

RESULT = "ladder.json"


def measured_rungs(
    photos: Path,
    output: Path,
    labels: str,
    network: Network | None,
    sizes: tuple[int, ...],
    groups: Path | None,
    test_share: float,
    loss: str,
    seed: int,
    ship: bool,
    as_json: bool,
) -> str:
    """Measures the rungs, writes OUTPUT/ladder.json, and returns the table or JSON. Raises UserError as
    `ladder` does, and for a CSV of groups that cannot be read.
    """
    group_of = None if groups is None else _groups(groups)
    plan = Plan(
        network or default_network(), sizes, test_share, seed=seed, group_of=group_of, loss=loss, ship=ship
    )
    result = ladder(photos, output, plan, labels)
    content = {
        "network": plan.network.name,
        "loss": loss,
        "rungs": [_plain(rung) for rung in result.rungs],
        "chosen": _plain(result.chosen),
        "validation": result.validation._asdict(),
        "test_classes": sorted(result.split.test),
        "folds": [sorted(fold) for fold in result.split.folds],
        "shipped": ship and result.chosen.name == "linear",
    }
    write_json(output / RESULT, content)
    if as_json:
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return "".join(f"{line}\n" for line in _lines(result, plan, output))


def _plain(rung: Rung) -> dict[str, object]:
    difference = None if rung.difference is None else rung.difference._asdict()
    return rung._asdict() | {"difference": difference}


def _lines(result: Result, plan: Plan, output: Path) -> Iterator[str]:
    test = result.rungs[0].test
    yield (
        f"{plan.network.name}: {test['queries']:,} photos of {test['classes']:,} unseen classes, "
        f"{sum(map(len, result.split.folds)):,} training classes; 95% intervals over classes"
    )
    yield ""
    yield "rung    pixels  steps  held-out MAP@R  Recall@1  MAP@R                 CPU seconds"
    for rung in result.rungs:
        recall, precision, low, high = (
            100 * float(rung.test[name])
            for name in ("recall_at_1", "map_at_r", "map_at_r_low", "map_at_r_high")
        )
        interval = f"{precision:.1f} ({low:.1f} to {high:.1f})"
        yield (
            f"{rung.name:<6}  {rung.size:6d}  {rung.steps:5d}  {100 * rung.validation:14.1f}  {recall:8.1f}  "
            f"{interval:<20}  {rung.seconds:11.0f}"
        )
    yield ""
    chosen, choice = result.chosen, result.validation
    span = f"{100 * choice.difference:+.1f} MAP@R ({100 * choice.low:+.1f} to {100 * choice.high:+.1f})"
    verdict = "pays" if chosen.name == "linear" else "does not pay"
    yield f"Training a linear layer {verdict} here: {span} on held-out training classes."
    difference = result.rungs[-1].difference
    assert difference is not None
    yield (
        f"On the unseen classes linear changes MAP@R by {100 * difference.difference:+.1f} "
        f"({100 * difference.low:+.1f} to {100 * difference.high:+.1f}, p = {difference.p_value:.2g})."
    )
    if plan.ship and chosen.name == "linear":
        yield "The written layer is trained on all labelled classes. The table states the accuracy of the"
        yield "layer that the training classes trained."
    yield f"Search with the chosen model: unseen index PHOTOS CATALOG --model {output / 'model'}"


def _groups(path: Path) -> dict[str, str]:
    """The group of each class. Raises UserError for a file that cannot be read or lacks a column."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
        return {row["label"]: row["group"] for row in rows}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError) as error:
        raise UserError(
            f"{path} cannot be read: {type(error).__name__}: {error}.",
            "Write a CSV with the columns label,group.",
        ) from error
