"""Ensembles of the MLRC protocol (Musgrave et al. 2020): each method trained on every fold, several times."""

from typing import Any

from unseen.report.dataset import DataSet
from unseen.report.words import name_of, number, percent

KINDS = ("separated", "concatenated")
METRICS = ("recall_at_1", "r_precision", "map_at_r")


def content(dataset: DataSet) -> dict[str, Any] | None:
    """Mean and deviation over all ensembles of each method; None without ensembles."""
    by_method = {
        method: metrics
        for (name, method), metrics in dataset.report_data.ensembles.items()
        if name == dataset.name
    }
    if not by_method:
        return None
    rows = [
        {
            "method": method,
            "kind": kind,
            "cells": [
                number(metrics["members"]),
                number(metrics["ensembles"]),
                number(metrics[f"{kind}_dimensions"]),
                *(
                    f"{percent(metrics[f'{kind}_{name}'])} ± {percent(metrics[f'{kind}_{name}_std'])}"
                    for name in METRICS
                ),
            ],
        }
        for method, metrics in by_method.items()
        for kind in KINDS
    ]
    return {"columns": ["members", "ensembles", "dimensions", *map(name_of, METRICS)], "rows": rows}
