"""From the numbers of single runs to what the page says: means over seeds, their intervals, and which method is best, if any is.

Over seeds s = 1..n of one method: value = mean_s v_s, deviation = sample standard deviation (n - 1). The interval is over classes: that of the
metrics file for one seed, that of the mean for several (joint_intervals.py), and none where the runs left no per-query results.

A method is *clear* of the others when its interval lies wholly above that of every other method. Two intervals may overlap although the difference
is real (they are resampled from the same classes, so they move together): comparison_section.py looks at differences themselves.

What is shown is what the files hold: every number that is a share, under whatever name, comes as a metric.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NETWORKS = ("selected", "last", "reduced", "approximate", "best_on_test", "untrained")
HEADLINE = "map_at_r"  # the strictest of the metrics
CLASS_MEAN = "class_mean_"  # a metric again, as a mean over classes instead of queries
PREFIX = {name: "" if name == "selected" else f"{name}_" for name in NETWORKS}  # of the names of its metrics in a metrics file


@dataclass(frozen=True)
class Value:
    """A share in [0, 1]; bounds (over classes) are None without an interval, `deviation` with one seed. `each`: of the seeds, in order."""

    value: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    each: tuple[float, ...] = ()


@dataclass(frozen=True)
class Results:
    """One data set: values[method][network][metric], methods in the order of the run."""

    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    values: dict[str, dict[str, dict[str, Value]]]
    seeds: int

    def of(self, method: str, metric: str, network: str = "selected") -> Value | None:
        return self.values[method].get(network, {}).get(metric)


def results(
    runs: Iterable[tuple[str, dict[str, Any]]], methods: Sequence[str], joint: Mapping[str, Mapping[str, tuple[float, float]]] | None = None
) -> Results:
    """Results of (method, content of data/metrics/<d>/<m>/<s>.json) pairs. joint: of methods with several seeds, the interval of each metric."""
    files: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    for method, file in runs:
        files[method].append(file)
    names = {name for group in files.values() for file in group for name in own_metrics(file)}
    values = {
        method: {
            network: {name: _value(group, full, (joint or {}).get(method, {})) for name in names if _in_all(group, full := PREFIX[network] + name)}
            for network in NETWORKS
        }
        for method, group in files.items()
    }
    return Results(tuple(methods), tuple(sorted(names, key=_rank)), values, max(len(group) for group in files.values()))


@dataclass(frozen=True)
class Verdict:
    """The best method by `metric`; `rivals`: methods whose interval reaches into its own. None of them: the best is clear."""

    best: str
    metric: str
    value: Value
    rivals: tuple[str, ...]

    @property
    def clear(self) -> bool:
        return not self.rivals and self.value.low is not None


def verdict(found: Results, metric: str, network: str = "selected") -> Verdict | None:
    """The verdict on `metric`, or None where no method has it. Equal values: the first in the order of the run, and never clear."""
    have = [(method, value) for method in found.methods if (value := found.of(method, metric, network)) is not None]
    if not have:
        return None
    best, top = max(have, key=lambda pair: pair[1].value)
    rivals = tuple(method for method, value in have if method != best and not _above(top, value))
    return Verdict(best, metric, top, rivals)


def _above(one: Value, other: Value) -> bool:
    return one.low is not None and other.high is not None and one.low > other.high


def own_metrics(file: Mapping[str, Any]) -> list[str]:
    """Names of the metrics of the selected network in a metrics file."""
    return [name for name, value in file.items() if _is_metric(name, value)]


def _value(files: list[dict[str, Any]], name: str, joint: Mapping[str, tuple[float, float]]) -> Value:
    values = [file[name] for file in files]
    if len(files) == 1:
        return Value(values[0], files[0].get(f"{name}_low"), files[0].get(f"{name}_high"), None, tuple(values))
    low, high = joint.get(name, (None, None))
    return Value(statistics.fmean(values), low, high, statistics.stdev(values), tuple(values))


def _in_all(files: list[dict[str, Any]], name: str) -> bool:
    return bool(files) and all(name in file for file in files)


def _is_metric(name: str, value: Any) -> bool:
    """Counts are whole numbers and hashes text; what is left of the selected network is a metric or a bound of one."""
    return isinstance(value, float) and not name.startswith(tuple(PREFIX[name] for name in NETWORKS[1:])) and not name.endswith(("_low", "_high"))


def _rank(name: str) -> tuple[bool, int, int, str]:
    """Recall@1, the headline, R-precision, then MAP and recall by K: what a phone shows without scrolling comes first; means over classes last."""
    order = ("recall_at_1", HEADLINE, "r_precision", "map")
    own = name.removeprefix(CLASS_MEAN)
    tail = own.rpartition("_")[2]
    place = order.index(own) if own in order else len(order) - own.endswith("_map")  # that of a landmark benchmark
    return own != name, place, int(tail) if tail.isdigit() else 1000, own
