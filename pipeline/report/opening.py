"""How the page opens on a data set: one sentence of which method leads, as far as the paired comparison allows to say so, and a few large numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.inputs import Inputs
from pipeline.report.networks import pretrained
from pipeline.report.summary import Results, Verdict, verdict
from pipeline.report.words import counted, interval, listed, name_of, percent, points, signed_points

_WHOLE = Markup('<span class="whole">{}</span>')  # on one line


@dataclass(frozen=True)
class Leader:
    """What the paired comparison says of the method with the highest headline."""

    ahead: Sequence[str]  # methods it is ahead of
    open: Sequence[str]  # methods against which that stays open
    margin: tuple[float, float, float] | None = None  # difference and its interval, where there is one other method


def lede(inputs: Inputs, dataset: str, found: Results, best: Verdict | None, paired: Leader | None) -> Markup:
    """What was judged on what, which method is ahead of which on the same queries, by how much, and what the network was worth before."""
    test = inputs.shards[dataset].manifest["counts"]["test"]
    said = Markup("On <b>{}</b>, {} of {} that no training has seen: ").format(
        dataset, counted(test["images"], "test image"), counted(test["classes"], "class")
    )
    if best is None:
        return said + Markup("no result.")
    value = Markup(percent(best.value.value))
    if interval(best.value):
        value += " " + _WHOLE.format(f"({interval(best.value)})")
    if found.seeds > 1:
        value += f", the mean of {found.seeds} seeds"
    said += _verdict(found, best, paired, name_of(best.metric), value)
    floor = found.of(best.best, best.metric, "untrained")
    if floor is not None:
        began = "fine-tuning, with its pretrained weights" if pretrained(inputs.of(dataset, best.best)[0]) else "training, with random weights"
        said += Markup(" Before {}, the same network reached {}.").format(began, percent(floor.value))
    return said


def _verdict(found: Results, best: Verdict, paired: Leader | None, metric: str, value: Markup) -> Markup:
    method, others = best.best, [name for name in found.methods if name != best.best]
    if not others:
        return Markup("<b>{}</b> reaches {} {}.").format(method, metric, value)
    if paired is None:  # a metric that no queries were compared by: intervals are all there is
        said = Markup("<b>{}</b> has the highest {}, {}").format(method, metric, value)
        if best.clear:
            return said + Markup(", an interval clear of every other method's.")
        return said + (Markup(", but its interval overlaps with that of {}.").format(listed(best.rivals)) if best.rivals else Markup("."))
    if len(others) == 1:
        other = found.of(others[0], best.metric)
        assert other is not None
        assert paired.margin is not None
        difference, low, high = paired.margin
        apart = f"{points(difference)} points " + _WHOLE.format(f"({signed_points(low)} to {signed_points(high)})")
        if paired.ahead:
            return Markup("<b>{}</b> is ahead of <b>{}</b>, by {} on the same queries. Its {} is {}, against {}.").format(
                method, others[0], apart, metric, value, percent(other.value)
            )
        return Markup("whether <b>{}</b> is ahead of <b>{}</b> stays open. Its {} is {}, against {}; on the same queries it leads by {}.").format(
            method, others[0], metric, value, percent(other.value), apart
        )
    if not paired.open:
        return Markup("<b>{}</b> is ahead of each of the {} other methods on the same queries. Its {} is {}.").format(
            method, len(others), metric, value
        )
    if paired.ahead:
        return Markup("<b>{}</b> is ahead of {} on the same queries; whether it is ahead of {} stays open. Its {} is the highest, {}.").format(
            method, listed(paired.ahead), listed(paired.open), metric, value
        )
    return Markup("no lead is certain. The {} of <b>{}</b> is the highest, {}, but whether it is ahead of {} on the same queries stays open.").format(
        metric, method, value, listed(paired.open) if len(paired.open) <= 3 else f"any of the {len(paired.open)} other methods"
    )


def tiles(inputs: Inputs, dataset: str, found: Results, best: Verdict | None) -> list[dict[str, str]]:
    """The size of the test, the highest numbers, and where the leading method's network began."""
    test = inputs.shards[dataset].manifest["counts"]["test"]
    made = [{"label": "Unseen classes", "figure": f"{test['classes']:,}", "unit": "", "under": counted(test["images"], "test image")}]
    for top in (best, verdict(found, "recall_at_1")) if best else ():
        if top is not None:
            under = ", ".join(filter(None, (top.best, interval(top.value))))
            made.append({"label": f"Highest {name_of(top.metric)}", "figure": percent(top.value.value), "unit": "%", "under": under})
    floor = found.of(best.best, best.metric, "untrained") if best else None
    if best is not None and floor is not None:
        tuned = pretrained(inputs.of(dataset, best.best)[0])
        label = f"{name_of(best.metric)} before {'fine-tuning' if tuned else 'training'}"
        under = f"{best.best}, {'pretrained' if tuned else 'random'} weights"
        made.append({"label": label, "figure": percent(floor.value), "unit": "%", "under": under})
    return made
