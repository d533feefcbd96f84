"""The first sentence of the page on a data set: the best method, by how much, and which differences are significant."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from pipeline.report.comparison import Lead
from pipeline.report.dataset import DataSet
from pipeline.report.networks import is_pretrained
from pipeline.report.summary import Best, Summary
from pipeline.report.words import counted, interval, listed, name_of, percent, points, signed_points

_ON_ONE_LINE = Markup('<span class="whole">{}</span>')
MAX_NAMED = 3  # methods that the sentence names one by one


def content(dataset: DataSet) -> dict[str, Any]:
    return {"sentence": sentence(dataset, dataset.summary, dataset.best, dataset.lead)}


def sentence(dataset: DataSet, summary: Summary, best: Best | None, lead: Lead | None) -> Markup:
    """Test classes, best method, significance, and the same network before training. lead: None if not compared."""
    test = dataset.shards.manifest["counts"]["test"]
    text = Markup("On <b>{}</b>, {} of {} that no training has seen: ").format(
        dataset.name, counted(test["images"], "test image"), counted(test["classes"], "class")
    )
    if best is None:
        return text + Markup("no result.")
    value = Markup(percent(best.value.value))
    if interval(best.value):
        value += " " + _ON_ONE_LINE.format(f"({interval(best.value)})")
    if summary.seeds > 1:
        value += f", the mean of {summary.seeds} seeds"
    text += _comparison(summary, best, lead, name_of(best.metric), value)
    untrained = summary.of(best.method, best.metric, "untrained")
    if untrained is not None:
        is_tuned = is_pretrained(dataset.runs(best.method)[0])
        start = "fine-tuning, with its pretrained weights" if is_tuned else "training, with random weights"
        text += Markup(" Before {}, the same network reached {}.").format(start, percent(untrained.value))
    return text


def _comparison(summary: Summary, best: Best, lead: Lead | None, metric: str, value: Markup) -> Markup:
    method, others = best.method, [name for name in summary.methods if name != best.method]
    if not others:
        return Markup("<b>{}</b> reaches {} {}.").format(method, metric, value)
    if lead is None:
        return _by_intervals(best, metric, value)
    if len(others) == 1:
        return _of_two(summary, best, others[0], lead, metric, value)
    if not lead.not_significant:
        return Markup(
            "<b>{}</b> is ahead of each of the {} other methods on the same queries. Its {} is {}."
        ).format(method, len(others), metric, value)
    if lead.better_than:
        return Markup(
            "<b>{}</b> is ahead of {} on the same queries; whether it is ahead of {} stays open. "
            "Its {} is the highest, {}."
        ).format(method, listed(lead.better_than), listed(lead.not_significant), metric, value)
    return Markup(
        "no lead is certain. The {} of <b>{}</b> is the highest, {}, "
        "but whether it is ahead of {} on the same queries stays open."
    ).format(metric, method, value, _named(lead.not_significant))


def _by_intervals(best: Best, metric: str, value: Markup) -> Markup:
    """Of a metric without per-query values, which allow no paired comparison."""
    text = Markup("<b>{}</b> has the highest {}, {}").format(best.method, metric, value)
    if best.clear:
        return text + Markup(", an interval clear of every other method's.")
    if best.overlapping:
        return text + Markup(", but its interval overlaps with that of {}.").format(listed(best.overlapping))
    return text + Markup(".")


def _of_two(summary: Summary, best: Best, second: str, lead: Lead, metric: str, value: Markup) -> Markup:
    other = summary.of(second, best.metric)
    assert other is not None
    assert lead.margin is not None
    difference, low, high = lead.margin
    margin = f"{points(difference)} points " + _ON_ONE_LINE.format(
        f"({signed_points(low)} to {signed_points(high)})"
    )
    if lead.better_than:
        return Markup(
            "<b>{}</b> is ahead of <b>{}</b>, by {} on the same queries. Its {} is {}, against {}."
        ).format(best.method, second, margin, metric, value, percent(other.value))
    return Markup(
        "whether <b>{}</b> is ahead of <b>{}</b> stays open. Its {} is {}, against {}; "
        "on the same queries it leads by {}."
    ).format(best.method, second, metric, value, percent(other.value), margin)


def _named(methods: Sequence[str]) -> str:
    return listed(methods) if len(methods) <= MAX_NAMED else f"any of the {len(methods)} other methods"
