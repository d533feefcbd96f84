"""Mean, deviation and t interval of one metric over the seeds of a method.

    mean +- t_{S-1, (1 + confidence) / 2} s / sqrt(S),    s: standard deviation of the S runs, divisor S - 1

(Student 1908). The interval measures how much the metric would change with another training on the same
classes. It does not measure how much the metric depends on the classes (intervals.py).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import stdtrit


class Average(NamedTuple):
    """The mean of S runs with its interval."""

    mean: float
    deviation: float  # divisor S - 1
    low: float
    high: float

    def negative(self) -> "Average":
        """The mean of the negative values."""
        return Average(-self.mean, self.deviation, -self.high, -self.low)


def over_seeds(values: Float64[np.ndarray, "S"], confidence: float) -> Average:
    """Mean, deviation and t interval of S runs.

    Raises ValueError for a single run, which has no deviation.
    """
    runs = len(values)
    if runs < 2:
        raise ValueError("an interval over seeds needs two runs or more")
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    half = float(stdtrit(runs - 1, (1 + confidence) / 2)) * deviation / runs**0.5
    return Average(mean, deviation, mean - half, mean + half)
