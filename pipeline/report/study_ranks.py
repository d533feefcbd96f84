"""What a table of a study compares: the order of its rows, and the gain of a row over its baseline.

The rank correlation is Spearman's: the Pearson correlation of the ranks of the printed numbers and of our
means.
"""

from collections.abc import Sequence

from scipy.stats import spearmanr

from unseen.config.inputs import StudyInputs
from unseen.experiments.printed import Number
from unseen.report.study_cells import Cell, Column, Gain, Line, Ours, Rank


def rank_correlations(columns: tuple[Column, ...], lines: Sequence[Line], metric: str) -> tuple[Rank, ...]:
    """The rank correlation of each printed column over the lines with both numbers; none below three."""
    own = next((place for place, column in enumerate(columns) if column == Column(metric)), None)
    ranks = []
    for place, column in enumerate(columns):
        ours_at = own if column.printed_for else place
        if ours_at is None:
            continue
        pairs = [
            (number.value, ours.value)
            for line in lines
            if (number := line.cells[place].printed) is not None
            and number.reliable
            and (ours := line.cells[ours_at].ours) is not None
        ]
        printed, ours_values = ({pair[side] for pair in pairs} for side in (0, 1))
        if len(pairs) >= 3 and len(printed) > 1 and len(ours_values) > 1:
            ranks.append(Rank(column, float(spearmanr(pairs).statistic), len(pairs)))
    return tuple(ranks)


def relative_gains(
    study: StudyInputs, columns: tuple[Column, ...], lines: Sequence[Line]
) -> dict[Column, tuple[Gain, ...]]:
    """The relative differences of the rows from their baselines, for each column of `study.metric` with our
    numbers."""
    gains = {}
    for place, column in enumerate(columns):
        if column.metric != study.metric or column.printed_for or not study.baselines:
            continue
        cells = {line.label: line.cells[place] for line in lines}
        gains[column] = tuple(
            Gain(
                row,
                baseline,
                _relative(cells[row].ours, cells[baseline].ours),
                _relative(_reliable(cells[row]), _reliable(cells[baseline])),
            )
            for row, baseline in study.baselines.items()
        )
    return gains


def _reliable(cell: Cell) -> Number | None:
    return cell.printed if cell.printed is not None and cell.printed.reliable else None


def _relative(number: Ours | Number | None, baseline: Ours | Number | None) -> float | None:
    """100 (a - b) / b."""
    if number is None or baseline is None or not baseline.value:
        return None
    return 100 * (number.value - baseline.value) / baseline.value
