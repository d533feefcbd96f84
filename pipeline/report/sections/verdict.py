"""The first paragraph on a data set: the best method, and its differences from the others by the rule of
comparison.py: significant, or with one seed distinct from zero over classes.
"""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from unseen.report.comparison import Lead
from unseen.report.dataset import DataSet
from unseen.report.networks import is_pretrained
from unseen.report.summary import FLOOR, Best, Summary
from unseen.report.words import counted, interval, listed, name_of, percent, points, signed_points

_ON_ONE_LINE = Markup('<span class="whole">{}</span>')


def content(dataset: DataSet) -> dict[str, Any]:
    return {"sentence": sentence(dataset, dataset.summary, dataset.best, dataset.lead)}


def sentence(dataset: DataSet, summary: Summary, best: Best | None, lead: Lead | None) -> Markup:
    """Test classes, best method, significance, and the features before training. lead: None if not
    compared.
    """
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
    """The best method and its differences from the others."""
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
        return text + Markup(" {}").format(_by_intervals(best))
    if len(others) == 1:
        return text + Markup(" {}").format(_of_two(summary, best, others[0], lead))
    return text + Markup(" {}").format(_of_many(lead, len(others)))


def _by_intervals(best: Best) -> str:
    """For a metric without per-query values, which allow no paired comparison."""
    if best.overlapping:
        return f"Its interval overlaps with that of {listed(best.overlapping)}."
    return "Its interval lies above all others." if best.clear else ""


def _of_two(summary: Summary, best: Best, second: str, lead: Lead) -> Markup:
    other = summary.of(second, best.metric)
    assert other is not None
    assert lead.margin is not None
    difference, low, high = lead.margin
    bounds = _ON_ONE_LINE.format(f"({signed_points(low)} to {signed_points(high)})")
    return Markup("<b>{}</b> has {}. The difference of {} points {} is {}.").format(
        second, percent(other.value), points(difference), bounds, _result(lead, bool(lead.better_than))
    )


def _of_many(lead: Lead, others: int) -> str:
    if not lead.not_better_than:
        return f"The differences from all {others} other methods are {_result(lead, True)}."
    if not lead.better_than:
        return f"No difference from another method is {_result(lead, True)}."
    return (
        f"{_differences(lead.better_than)} {_result(lead, True)}. "
        f"{_differences(lead.not_better_than)} not{' significant' * lead.has_seeds}."
    )


def _result(lead: Lead, is_better: bool) -> str:
    if lead.has_seeds:
        return "significant" if is_better else "not significant"
    return ("" if is_better else "not ") + "distinct from zero over these classes, with one training each"


def _differences(methods: Sequence[str]) -> str:
    """The differences from `methods` as subject and verb."""
    plural = len(methods) > 1
    return f"The difference{'s' * plural} from {listed(methods)} {'are' if plural else 'is'}"
