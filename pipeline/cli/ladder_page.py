"""The result of a ladder as an HTML page that works offline: the verdict, accuracy against CPU time, all
rungs, and the frozen network at each size."""

from collections.abc import Sequence

from markupsafe import Markup

from unseen.evaluation.decision import WITH_MARGIN
from unseen.evaluation.headline import in_percent
from unseen.evaluation.unknown import percent
from unseen.experiments.ladder.ladder import Rung
from unseen.experiments.ladder.products import KINDS
from unseen.report.html import environment, style

COLUMNS = ("rung", "pixels", "steps", "MAP@R", *KINDS, "held-out", "CPU s")
NOTE = (
    "By rule: the share of the photos that get the right product; `nearest` is Recall@1. No rule is trained; "
    "* held-out classes choose it. held-out: their MAP@R, which chooses the rung."
)


def cells(rung: Rung) -> tuple[str, ...]:
    """A row of the table with COLUMNS, in percent; all but `held-out` are of the test classes."""
    rights = [""] * len(KINDS)
    if rung.products is not None:
        chosen, rules = rung.products.rule.removesuffix(WITH_MARGIN), rung.products.rules
        rights = [percent(rules[kind].value) + "*" * (kind == chosen) for kind in KINDS]
    return (
        rung.name,
        str(rung.size),
        str(rung.steps),
        in_percent(rung.test, "map_at_r"),
        *rights,
        f"{100 * rung.validation:.1f}",
        f"{rung.seconds:.0f}",
    )


def page(
    network: str, photos: str, rungs: Sequence[Rung], chosen: Rung, verdict: Sequence[str], picture: str
) -> str:
    """The HTML text. photos: what was measured. verdict: sentences. picture: an SVG (picture.py)."""
    frozen = [rung for rung in rungs if rung.name == "frozen"]
    base = next(rung for rung in frozen if rung.size == chosen.size)
    sizes = [
        {
            "size": rung.size,
            "value": f"{100 * float(rung.test['map_at_r']):.1f}",
            "difference": ""
            if rung is base
            else f"{100 * (float(rung.test['map_at_r']) - float(base.test['map_at_r'])):+.1f}",
        }
        for rung in frozen
    ]
    return (
        environment()
        .get_template("ladder.html")
        .render(
            css=style(),
            network=network,
            photos=photos,
            chosen=f"{chosen.name}, {chosen.size} pixels",
            verdict=verdict,
            picture=Markup(picture),
            rows=[
                {
                    "cells": cells(rung),
                    "chosen": (rung.name, rung.size) == (chosen.name, chosen.size),
                }
                for rung in rungs
            ],
            columns=COLUMNS,
            note=NOTE,
            size=base.size,
            sizes=sizes,
        )
    )
