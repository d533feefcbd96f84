"""What the photos of a rung get: the right product or a wrong one (evaluation/decision.py).

    rule     what `choose` takes on held-out classes: each fold is a catalog, whose photos are left out
    right    the test classes are the catalog: share of the photos whose class has another photo that get
             the right product, without a threshold

No rule is trained. A margin changes only the threshold: a rule answers all photos the same with and without.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from unseen.evaluation.curve import Rate, rates_of
from unseen.evaluation.decision import NEAREST, RULES, WITH_MARGIN, LeftOut, choose, drawn, joined, left_out

KINDS = tuple(rule for rule in RULES if not rule.endswith(WITH_MARGIN))
Catalog = tuple[Float32[np.ndarray, "_ D"], Int64[np.ndarray, "_"]]  # vectors and labels


class Products(NamedTuple):
    """What photos get on the vectors of a rung."""

    rule: str  # that held-out classes choose
    right: Rate  # test photos that get the right product by this rule
    rules: dict[str, Rate]  # the same by each of KINDS


def products(held_out: Sequence[Catalog], test: Catalog) -> Products | None:
    """held_out: the catalog of each fold. None if all test photos show one product."""
    of_test = _left_out([test], KINDS)
    if not of_test:
        return None
    known = ~np.isnan(of_test[NEAREST].known)
    values = np.stack([table.right[known] for table in of_test.values()], axis=1).astype(np.float64)
    rules = dict(zip(of_test, rates_of(values, of_test[NEAREST].label[known]), strict=True))
    of_folds = _left_out(held_out, RULES)
    rule = choose(of_folds)[0].rule if of_folds else NEAREST
    return Products(rule, rules[rule.removesuffix(WITH_MARGIN)], rules)


def _left_out(catalogs: Sequence[Catalog], rules: Sequence[str]) -> dict[str, LeftOut]:
    """By rule what the photos of all catalogs with two products get; empty without such a catalog."""
    parts: dict[str, list[LeftOut]] = {}
    for vectors, labels in catalogs:
        names, numbers = np.unique(labels, return_inverse=True)
        if len(names) > 1:
            rows = drawn(numbers, np.zeros(len(names), bool))
            tables = left_out(vectors, numbers, rows, rules)
            for rule, (row, label, other, rival, known, answer) in tables.items():
                renamed = LeftOut(row, names[label], other, names[rival], known, names[answer])
                parts.setdefault(rule, []).append(renamed)
    return {rule: joined(tables) for rule, tables in parts.items()}
