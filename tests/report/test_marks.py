"""The marks of all figures of a page and of a study, read back from what is drawn.

marks.json has those of figures that a person has looked at. Other places, styles and texts fail.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from tests.report.marks import marks_of, recorded
from tests.report.test_study_table import FORMS, grid_table
from unseen.report.page import build
from unseen.report.report_data import ReportData
from unseen.report.study_cells import Ours, Point
from unseen.report.study_figures import charts, grouped_bars
from unseen.report.study_files import write
from unseen.report.study_table import study_table
from unseen.report.svg import save
from unseen.runtime.files import write_json

MARKS = Path(__file__).with_name("marks.json")


@pytest.mark.slow
def test_the_figures_of_a_page_have_the_marks_of_those_that_were_looked_at(
    two_seeds_inputs: ReportData, tmp_path: Path
) -> None:
    with recorded() as figures:
        build(
            replace(two_seeds_inputs, datasets=("birds",)), "A report", queries=2, neighbours=3, thumbnail=20
        )
    compare("page", figures, tmp_path)


@pytest.mark.slow
def test_the_figures_of_a_study_have_the_marks_of_those_that_were_looked_at(
    study_inputs: ReportData, tmp_path: Path
) -> None:
    changes = {"figures": tuple(FORMS), "baselines": {"K1 = 4": "K1 = 1", "K1 = 64": "K1 = 16"}}
    study = study_inputs.studies[0].model_copy(update=changes)
    axes = {"loss.margin": "beta", "koleo_weight": "lambda"}
    points = [Point("a", (x, y), Ours(10 * x + y, None), 5.0) for x in (1.0, 73.0) for y in (0.0, 0.25)]
    with recorded() as figures:
        table = study_table(study_inputs, "cub", study)
        write(table, study_inputs, tmp_path)
        save(grouped_bars([table, table]), tmp_path / "bars")
        charts(grid_table(axes, points), "grid")
    compare("study", figures, tmp_path)


def compare(name: str, figures: list[Figure], folder: Path) -> None:
    """Fails where the marks differ from those in MARKS. Writes the present ones into `folder`."""
    marks = [marks_of(figure) for figure in figures]
    present = folder / f"{name}.json"
    write_json(present, marks)
    known = json.loads(MARKS.read_text(encoding="utf-8"))[name]
    changes = differences(known, json.loads(present.read_text(encoding="utf-8")))
    assert not changes, f"{changes[:10]}\nLook at the figures. If they are right, put {present} into {MARKS}."


def differences(known: Any, present: Any, place: str = "") -> list[str]:
    if isinstance(known, dict) and isinstance(present, dict) and known.keys() == present.keys():
        return [line for key in known for line in differences(known[key], present[key], f"{place}.{key}")]
    if isinstance(known, list) and isinstance(present, list) and len(known) == len(present):
        pairs = enumerate(zip(known, present, strict=True))
        return [line for row, pair in pairs for line in differences(*pair, f"{place}[{row}]")]
    if isinstance(known, float) and isinstance(present, float):
        same = present == pytest.approx(known, rel=1e-2, abs=1e-3, nan_ok=True)
    else:
        same = known == present
    return [] if same else [f"{place}: {str(known)[:200]}, now {str(present)[:200]}"]
