"""Holm's adjustment of p values for several comparisons (Holm 1979).

With one comparison in twenty, p is below 0.05 by chance. The adjustment controls the error of a whole family
of comparisons: if those with an adjusted p value of at most alpha are rejected, the chance of any false
rejection is at most alpha. A report must name the family.
"""

import numpy as np
from jaxtyping import Float64


def holm(p_values: Float64[np.ndarray, "T"]) -> Float64[np.ndarray, "T"]:
    """Adjusted p values of a family of T comparisons.

    With p_(1) <= .. <= p_(T): adjusted p_(i) = max over j <= i of min(1, (T - j + 1) p_(j)).
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    scaled = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted
