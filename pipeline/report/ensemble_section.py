"""What the page says of the MLRC protocol on one data set: each method that was trained on every fold, several times, and its ensembles."""

from typing import Any

from pipeline.report.inputs import Inputs
from pipeline.report.words import name_of, number, percent

KINDS = ("separated", "concatenated")
METRICS = ("recall_at_1", "r_precision", "map_at_r")


def ensemble_section(inputs: Inputs, dataset: str) -> dict[str, Any] | None:
    """Mean and deviation over all ensembles of each method; None where no method was trained so."""
    found = {method: metrics for (of, method), metrics in inputs.ensembles.items() if of == dataset}
    if not found:
        return None
    rows = [
        {
            "method": method,
            "kind": kind,
            "cells": [
                number(metrics["members"]),
                number(metrics["ensembles"]),
                number(metrics[f"{kind}_dimensions"]),
                *(f"{percent(metrics[f'{kind}_{name}'])} ± {percent(metrics[f'{kind}_{name}_std'])}" for name in METRICS),
            ],
        }
        for method, metrics in found.items()
        for kind in KINDS
    ]
    return {"columns": ["members", "ensembles", "dimensions", *map(name_of, METRICS)], "rows": rows}
