"""The result of a ladder as an HTML page that works offline: the verdict, accuracy against CPU time, all
rungs, and the frozen network at each size."""

from collections.abc import Sequence

from markupsafe import Markup

from unseen.evaluation.headline import in_percent
from unseen.experiments.ladder.ladder import Rung
from unseen.report.html import environment, style


def cells(rung: Rung) -> tuple[str, ...]:
    """A row of the table: name, pixels, steps, MAP@R on held-out classes, Recall@1 and MAP@R on the test
    classes in percent, CPU seconds."""
    return (
        rung.name,
        str(rung.size),
        str(rung.steps),
        f"{100 * rung.validation:.1f}",
        f"{100 * float(rung.test['recall_at_1']):.1f}",
        in_percent(rung.test, "map_at_r"),
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
            size=base.size,
            sizes=sizes,
        )
    )
