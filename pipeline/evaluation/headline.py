"""The numbers of a metrics file: what people compare between commits with `dvc metrics diff`.

All metrics of all networks are in data/evaluation (`metrics.json`).
"""

from collections.abc import Collection, Mapping

LEVELS = ("easy_map", "medium_map", "hard_map")  # of the landmark benchmarks
NAMES = ("recall_at_1", "map_at_r")
_ENDS = ("_low", "_high")
FLOOR = "features_"  # prefix of the metrics of the features before training, without a projection
# prefixes of metrics
_NETWORKS = ("last_", "untrained_", FLOOR, "reduced_", "approximate_", "best_on_test_")


def headline(
    metrics: Mapping[str, float | int | str], own: Collection[str] = ()
) -> dict[str, float | int | str]:
    """Of all metrics of a run: Recall@1, MAP@R and the metrics `own` of a user of the selected network with
    their intervals, MAP@R of the features before training, the counts, and the hash of the protocol. For
    landmark benchmarks the MAP of each level and its interval, and the medium MAP of the features before
    training."""
    return {name: value for name, value in metrics.items() if _is_headline(name, value, own)}


def interval_note(metrics: Mapping[str, float | int | str]) -> str:
    """Of which intervals `in_percent` prints."""
    return "95% intervals over classes" if "map_at_r_low" in metrics else "too few classes for intervals"


def in_percent(metrics: Mapping[str, float | int | str], name: str) -> str:
    """A metric in percent with its interval, if it has one: `14.2 (11.5 to 17.2)`."""
    value, *ends = (
        f"{100 * float(metrics[key]):.1f}" for key in (name, f"{name}_low", f"{name}_high") if key in metrics
    )
    return f"{value} ({' to '.join(ends)})" if ends else value


def _is_headline(name: str, value: float | int | str, own: Collection[str]) -> bool:
    if not isinstance(value, float):
        return not name.startswith(_NETWORKS)
    if name.startswith(FLOOR):
        return name == f"{FLOOR}map_at_r" or name.endswith("_medium_map")
    metric = next((name.removesuffix(end) for end in _ENDS if name.endswith(end)), name)
    return not name.startswith(_NETWORKS) and (metric in (*NAMES, *own) or metric.endswith(LEVELS))
