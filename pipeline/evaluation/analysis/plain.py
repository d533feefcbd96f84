"""Numbers of the analysis as plain values of its files, with six significant digits: the last bits of a sum
depend on the number of BLAS threads."""

import math
from typing import Any

import numpy as np

from unseen.evaluation.analysis.similarity import Histogram

DIGITS = 6


def rounded(value: Any) -> Any:
    """`value` with DIGITS significant digits; None for a float that is not finite."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def rounded_list(values: np.ndarray) -> list[float]:
    return [rounded(float(value)) for value in values]


def plain_histogram(histogram: Histogram) -> dict[str, Any]:
    return {
        "share": rounded_list(histogram.share),
        "mean": rounded(histogram.mean),
        "std": rounded(histogram.std),
        "pairs": histogram.pairs,
        "of": histogram.of,
    }
