"""The command `unseen ladder`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unseen.cli.ladder_page import COLUMNS, NOTE, cells, page
from unseen.data.labels import csv_lines, read
from unseen.evaluation.curve import shown
from unseen.evaluation.decision import NEAREST
from unseen.evaluation.headline import in_percent, interval_note
from unseen.evaluation.statistics.better import Comparison
from unseen.evaluation.unknown import percent
from unseen.experiments.ladder.ladder import LadderPlan, Result, ladder
from unseen.experiments.ladder.picture import Panel, picture
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file, write_json
from unseen.runtime.text import aligned

RESULT, PICTURE, PAGE = "ladder.json", "ladder.svg", "ladder.html"


def measured_rungs(photos: Path, output: Path, plan: LadderPlan, labels: str, as_json: bool) -> str:
    """Measures the rungs, writes ladder.json, ladder.svg and ladder.html into OUTPUT, and returns the table
    or JSON. Raises UserError as `ladder` does."""
    result = ladder(photos, output, plan, labels)
    content: dict[str, Any] = {
        "network": plan.network.name,
        "loss": plan.loss,
        "head": plan.head,
        "rungs": [_plain(rung) for rung in result.rungs],
        "chosen": _plain(result.chosen),
        "test_classes": sorted(result.split.test),
        "folds": [sorted(fold) for fold in result.split.folds],
        "shipped": plan.ship and result.chosen.steps > 0,
        "warning": _warning(result, plan),
    }
    write_json(output / RESULT, content)
    panel = Panel(plan.network.name, content["rungs"], content["chosen"])
    drawn = picture([panel])
    with atomic_file(output / PICTURE) as aside:
        aside.write_text(drawn, encoding="utf-8")
    verdict = list(_verdict(result, plan))
    text = page(plan.network.name, _photos(result), result.rungs, result.chosen, verdict, drawn)
    with atomic_file(output / PAGE) as aside:
        aside.write_text(text, encoding="utf-8")
    if as_json:
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return "".join(f"{line}\n" for line in _lines(result, plan, output))


def _plain(value: Any) -> Any:
    """For JSON, with names in place of named tuples."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def _photos(result: Result) -> str:
    test = result.rungs[0].test
    return (
        f"{test['queries']:,} photos of {test['classes']:,} unseen classes, "
        f"{sum(map(len, result.split.folds)):,} training classes; {interval_note(test)}"
    )


def _lines(result: Result, plan: LadderPlan, output: Path) -> Iterator[str]:
    yield f"{plan.network.name}: {_photos(result)}"
    yield f"Chosen: {result.chosen.name}, {result.chosen.size} pixels."
    answers, *others = _verdict(result, plan)
    yield answers
    yield ""
    yield from aligned([COLUMNS, *map(cells, result.rungs)])
    yield NOTE
    yield ""
    yield from others
    yield f"Page, picture and all numbers: {output / PAGE}, {PICTURE}, {RESULT}"
    yield f"Search with the chosen model: unseen index PHOTOS CATALOG --model {output / 'model'}"


def _verdict(result: Result, plan: LadderPlan) -> Iterator[str]:
    """What photos of the test classes get with the chosen rung, what pays, what it changes on photos of
    another kind, and what was shipped."""
    chosen = result.chosen
    answers = f"On the test classes: MAP@R {in_percent(chosen.test, 'map_at_r')}"
    if of_chosen := chosen.products:
        answers += (
            f"; {shown(of_chosen.right)} of the photos get the right product by the rule `{of_chosen.rule}`"
        )
        if of_chosen.rule != NEAREST:
            answers += f", {percent(of_chosen.rules[NEAREST].value)} by `{NEAREST}`"
    yield f"{answers}."
    if warning := _warning(result, plan):
        yield f"Warning: {warning}"
    parts = {"linear": "a linear layer", "head": f"a head ({plan.head})", "adapt": "the last layers"}
    for rung in result.rungs:
        choice, difference = rung.validation_difference, rung.difference
        if choice is None or difference is None:
            continue
        part = parts[rung.name]
        pays = rung.outcome == "distinct over these classes" and choice.difference > 0
        verdict = "pays here" if pays else f"is not shown to pay here ({rung.outcome})"
        yield (
            f"Training {part} changes MAP@R on the test classes by {_change(difference)}, "
            f"p = {difference.p_value:.2g}."
        )
        yield f"{rung.name} {verdict}: {_change(choice)} MAP@R on held-out training classes, which choose."
    yield from _other_lines(result, plan)
    if plan.ship and result.chosen.steps:
        steps = f"{result.chosen.steps:,} steps that held-out classes chose"
        yield f"The written model is {result.chosen.name}, trained on all labelled classes for the {steps}."
        yield "Its accuracy was measured in the comparison, on a model that the training classes trained, not"
        yield "on the written one."


def _warning(result: Result, plan: LadderPlan) -> str | None:
    """A sentence with a remedy if more test photos get a wrong product than the right one."""
    products = result.chosen.products
    if products is None or products.right.value >= 0.5:
        return None
    right = products.right.value
    return (
        f"{plan.network.name} is not suited to these classes, {percent(right)} of the test photos get the "
        f"right product and {percent(1 - right)} a wrong one: name a network that was trained on classes of "
        "this kind with --network (individuals of one species need one for re-identification)."
    )


def _other_lines(result: Result, plan: LadderPlan) -> Iterator[str]:
    """What the trained rungs lose on photos of another kind."""
    trained = [rung for rung in result.rungs if rung.other is not None and rung.other_difference is not None]
    if not trained:
        yield "The loss on photos of another kind was not measured: --other PHOTOS measures it."
        return
    first = trained[0].other
    assert first is not None
    yield f"On {first['queries']:,} photos of another kind, {first['classes']:,} classes of {plan.other}:"
    for rung in trained:
        difference = rung.other_difference
        assert difference is not None
        yield (
            f"  {rung.name:<6} changes MAP@R from {100 * difference.first:.1f} to "
            f"{100 * difference.second:.1f}: {_change(difference)}"
        )


def _change(of: Comparison) -> str:
    """`+1.2 (+0.4 to +2.0)`, in points."""
    if of.low is None or of.high is None:
        return f"{100 * of.difference:+.1f} ({of.classes} classes are too few for an interval)"
    return f"{100 * of.difference:+.1f} ({100 * of.low:+.1f} to {100 * of.high:+.1f})"


def groups_of(path: Path) -> dict[str, str]:
    """The group of each class. Raises UserError for a file that cannot be read or is no such table, and for a
    class with two groups."""
    content = read(path, "Write a CSV with the columns label,group.")
    group_of: dict[str, str] = {}
    for line in csv_lines(content, str(path), ("label", "group")):
        label, group = line.values["label"], line.values["group"]
        if group_of.setdefault(label, group) != group:
            raise UserError(f"{line.place}: {label} is also in {group_of[label]}.", "Give it one group.")
    return group_of
