"""Tiles of the size of the test, the highest numbers and the features before training; the networks in a line
each.
"""

from typing import Any

from unseen.report.dataset import DataSet
from unseen.report.networks import is_pretrained, networks
from unseen.report.summary import FLOOR, Best, Summary, best_method
from unseen.report.words import counted, interval, name_of, percent


def content(dataset: DataSet) -> dict[str, Any]:
    return {
        "tiles": tiles(dataset, dataset.summary, dataset.best),
        "networks": networks(dataset.report_data, dataset.name),
    }


def tiles(dataset: DataSet, summary: Summary, best: Best | None) -> list[dict[str, str]]:
    """Label, number, unit and a line below, of each tile."""
    test = dataset.shards.manifest["counts"]["test"]
    images = counted(test["images"], "test image")
    result = [{"label": "Unseen classes", "figure": f"{test['classes']:,}", "unit": "", "under": images}]
    if best is None:
        return result
    for highest in (best, best_method(summary, "recall_at_1")):
        if highest is not None:
            under = ", ".join(filter(None, (highest.method, interval(highest.value))))
            result.append(
                {
                    "label": f"Highest {name_of(highest.metric)}",
                    "figure": percent(highest.value.value),
                    "unit": "%",
                    "under": under,
                }
            )
    floor = summary.of(best.method, best.metric, FLOOR)
    if floor is not None:
        is_tuned = is_pretrained(dataset.runs(best.method)[0])
        result.append(
            {
                "label": f"{name_of(best.metric)} before {'fine-tuning' if is_tuned else 'training'}",
                "figure": percent(floor.value),
                "unit": "%",
                "under": f"{best.method}, {'pretrained' if is_tuned else 'random'} weights, no projection",
            }
        )
    return result
