"""The first paragraph on a data set: the method with the highest value, and the verdicts of comparison.py on
it.
"""

from typing import Any

from markupsafe import Markup

from unseen.evaluation.statistics.better import DECIDABLE, LEAST, Outcome
from unseen.report.comparison import Lead, bounds
from unseen.report.dataset import DataSet
from unseen.report.networks import is_pretrained
from unseen.report.summary import FLOOR, Best, Summary
from unseen.report.words import counted, interval, listed, name_of, percent, points

_SENTENCES: dict[Outcome, str] = {
    "better": "It is better than {others}.",
    "worse": "It is worse than {others}.",
    "distinct over these classes": "Over these classes it is distinct from {others}, with one training each.",
    "equal": "It equals {others} within {margin} points.",
    "open": "Whether it is better than {others} is open.",
    "too few classes to decide": "To decide whether it is better than {others}, {classes} are too few: "
    "{needed} are needed.",
    "below the floor": "It is not above the features before training, so it is not called better than "
    "{others}.",
}
_ON_ONE_LINE = Markup('<span class="whole">{}</span>')


def content(dataset: DataSet) -> dict[str, Any]:
    return {"sentence": sentence(dataset, dataset.summary, dataset.best, dataset.lead)}


def sentence(dataset: DataSet, summary: Summary, best: Best | None, lead: Lead | None) -> Markup:
    """Test classes, best method, verdicts, and the features before training. lead: None if not compared."""
    test = dataset.shards.manifest["counts"]["test"]
    text = Markup("<b>{}</b> has {} of {} that were not seen in training.").format(
        dataset.name, counted(test["images"], "test image"), counted(test["classes"], "class")
    )
    if best is None:
        return text + Markup(" No metric is available.")
    text += Markup(" ") + _best(summary, best, lead)
    if lead is not None and summary.seeds == 1:
        text += Markup(
            " Each method was trained once, so this comparison excludes the variation between trainings."
        )
    floor = summary.of(best.method, best.metric, FLOOR)
    if floor is not None:
        is_tuned = is_pretrained(dataset.runs(best.method)[0])
        start = ("fine-tuning", "pretrained weights") if is_tuned else ("training", "random weights")
        text += Markup(" The network's features before {}, without a projection, had {} ({}).").format(
            start[0], percent(floor.value), start[1]
        )
    return text


def _best(summary: Summary, best: Best, lead: Lead | None) -> Markup:
    """The best method and the verdicts on it."""
    value = Markup(percent(best.value.value))
    if interval(best.value):
        value += " " + _ON_ONE_LINE.format(f"({interval(best.value)})")
    if summary.seeds > 1:
        value += f" as the mean of {summary.seeds} seeds"
    others = [name for name in summary.methods if name != best.method]
    verb = "has the highest" if others else "reaches"
    text = Markup("<b>{}</b> {} {}: {}.").format(best.method, verb, name_of(best.metric), value)
    if not others:
        return text
    if lead is None:
        return text + Markup(" The methods are not compared: {} has no values of queries by class.").format(
            name_of(best.metric)
        )
    if len(lead) == 1:
        ((other, verdict),) = lead.items()
        text += Markup(" <b>{}</b> has {}; the difference is {} points {}.").format(
            other,
            percent(verdict.comparison.first),
            points(verdict.comparison.difference),
            _ON_ONE_LINE.format(f"({bounds(verdict.comparison)})"),
        )
    of_outcome: dict[Outcome, list[str]] = {}
    for other, verdict in lead.items():
        of_outcome.setdefault(verdict.outcome, []).append(other)
    for outcome, names in of_outcome.items():
        named = f"all {len(names)} other methods" if 1 < len(names) == len(others) else listed(names)
        text += Markup(" " + _SENTENCES[outcome]).format(
            others=named,
            margin=points(LEAST[best.metric]),
            classes=counted(verdict.comparison.classes, "class"),
            needed=DECIDABLE,
        )
    return text
