"""Means over seeds of a data set's metrics, their intervals, and the method with the highest value of a
metric.

Over seeds s = 1..n of one method: value = mean_s v_s, deviation = sample standard deviation (n - 1). The
interval is over classes: that of the metrics file for one seed, that of the mean for several
(joint_intervals.py), and none if the runs left no per-query results.

The intervals of two methods may overlap although one is better: both are over the same classes, so they move
together. comparison.py tests the differences themselves; landmark sets, whose metrics it does not
compare, have the statement whether intervals overlap.

Every share in the metrics files is a metric, whatever its name.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NETWORKS = ("selected", "last", "reduced", "approximate", "best_on_test", "features", "untrained")
FLOOR = "features"  # the network of the reference without training
HEADLINE = "map_at_r"  # the strictest of the metrics
CLASS_MEAN = "class_mean_"  # prefix of a metric that is a mean over classes instead of queries
# of a network's metrics in the file
PREFIX = {name: "" if name == "selected" else f"{name}_" for name in NETWORKS}


@dataclass(frozen=True)
class Value:
    """A share in [0, 1]. `low` and `high` are None without an interval, `deviation` with one seed."""

    value: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    each: tuple[float, ...] = ()  # of the seeds, in order


@dataclass(frozen=True)
class Summary:
    """One data set: `values[method][network][metric]`, methods in the order of the run."""

    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    values: dict[str, dict[str, dict[str, Value]]]
    seeds: int

    def of(self, method: str, metric: str, network: str = "selected") -> Value | None:
        return self.values[method].get(network, {}).get(metric)

    @property
    def headline(self) -> str:
        """The metric by which the page compares methods: MAP@R, or the first medium MAP of a landmark set."""
        landmarks = [name for name in self.metrics if name.endswith("_medium_map")]
        return next((name for name in (HEADLINE, *landmarks) if name in self.metrics), self.metrics[0])

    def ranked(self) -> list[str]:
        """The methods by their headline metric, highest first; equal ones in the order of the run."""
        values = {method: self.of(method, self.headline) for method in self.methods}
        return sorted(self.methods, key=lambda method: -value.value if (value := values[method]) else 1.0)


@dataclass(frozen=True)
class Best:
    """The method with the highest `metric`."""

    method: str
    metric: str
    value: Value


def summarize(
    runs: Iterable[tuple[str, dict[str, Any]]],
    methods: Sequence[str],
    joint: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
) -> Summary:
    """The summary of (method, content of data/evaluation/<d>/<m>/<s>/metrics.json) pairs.

    joint: the interval of each metric of each method with several seeds.
    """
    files: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    for method, file in runs:
        files[method].append(file)
    names = {name for group in files.values() for file in group for name in own_metrics(file)}
    values = {
        method: {
            network: {
                name: _value(group, PREFIX[network] + name, (joint or {}).get(method, {}))
                for name in names
                if group and all(PREFIX[network] + name in file for file in group)
            }
            for network in NETWORKS
        }
        for method, group in files.items()
    }
    seeds = max(len(group) for group in files.values())
    return Summary(tuple(methods), tuple(sorted(names, key=_rank)), values, seeds)


def best_method(summary: Summary, metric: str) -> Best | None:
    """The selected network with the highest `metric`, None if no method has the metric.

    Of equal values the first in the order of the run is the best.
    """
    values = [
        (method, value) for method in summary.methods if (value := summary.of(method, metric)) is not None
    ]
    if not values:
        return None
    best, highest = max(values, key=lambda pair: pair[1].value)
    return Best(best, metric, highest)


def own_metrics(file: Mapping[str, Any]) -> list[str]:
    """Names of the metrics of the selected network in a metrics file."""
    return [name for name, value in file.items() if _is_metric(name, value)]


def _value(files: list[dict[str, Any]], name: str, joint: Mapping[str, tuple[float, float]]) -> Value:
    values = [file[name] for file in files]
    if len(files) == 1:
        return Value(
            values[0], files[0].get(f"{name}_low"), files[0].get(f"{name}_high"), None, tuple(values)
        )
    low, high = joint.get(name, (None, None))
    return Value(statistics.fmean(values), low, high, statistics.stdev(values), tuple(values))


def _is_metric(name: str, value: Any) -> bool:
    """Counts are integers and hashes are text. The other values are metrics and bounds of metrics."""
    of_others = tuple(PREFIX[network] for network in NETWORKS[1:])
    return (
        isinstance(value, float) and not name.startswith(of_others) and not name.endswith(("_low", "_high"))
    )


def _rank(name: str) -> tuple[bool, int, int, str]:
    """Order of the columns: Recall@1, the headline metric and R-precision, then MAP and recall by K.

    A phone shows the first columns without scrolling. Means over classes come last.
    """
    order = ("recall_at_1", HEADLINE, "r_precision", "map")
    metric = name.removeprefix(CLASS_MEAN)
    tail = metric.rpartition("_")[2]
    # landmark benchmarks
    place = order.index(metric) if metric in order else len(order) - metric.endswith("_map")
    return metric != name, place, int(tail) if tail.isdigit() else 1000, metric
