"""The content of a table of a study: columns, lines of cells, rank correlations, and points of its chart."""

from dataclasses import dataclass, field

from unseen.config.inputs import StudyInputs
from unseen.experiments.printed.model import PLAIN, Number
from unseen.report.comparison import Pair
from unseen.report.words import name_of

IMAGENET = "imagenet_top_1"  # as printed
COSTS = ("million_parameters", "gflops", IMAGENET)  # of networks
OF_HISTORY = ("gradient_covariance", "direction_covariance")  # means over the steps of a training


@dataclass(frozen=True)
class Ours:
    """Our value over the seeds, in percent, or as it is for a metric that is not a share."""

    value: float
    deviation: float | None  # None with one seed
    low: float | None = None  # of the interval over classes; None without one
    high: float | None = None


@dataclass(frozen=True)
class Column:
    """A printed metric, one of ours, or both."""

    metric: str
    kind: str = "selected"  # of our numbers, as in sections/published.py
    printed_for: str = ""  # another data set, for which the paper prints the column; then ours are left out

    @property
    def title(self) -> str:
        kind = "" if self.kind == "selected" else f"{self.kind} "
        of = f"{self.printed_for}: " if self.printed_for else ""
        return f"{of}{kind}{name_of(self.metric)}"


@dataclass(frozen=True)
class Cell:
    printed: Number | None
    ours: Ours | None

    @property
    def difference(self) -> float | None:
        """Ours minus the printed number; None without a reliable one."""
        if self.printed is None or self.ours is None or not self.printed.reliable:
            return None
        return self.ours.value - self.printed.value


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    label: str
    method: str | None  # in run.methods; None: printed, and not trained
    cells: tuple[Cell, ...]
    differences: tuple[str, ...] = ()  # conditions
    unstated: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rank:
    """Rank correlation of a printed column with our numbers over `rows` rows."""

    column: Column
    rho: float
    rows: int


@dataclass(frozen=True)
class Point:
    """A row in the chart: the values of its axes."""

    series: str
    place: tuple[float, ...]
    ours: Ours
    printed: float | None


@dataclass(frozen=True)
class Gain:
    """A row minus its baseline, in points, or in percent of the baseline; None without both numbers."""

    label: str
    baseline: str | None  # None: the highest other row
    ours: float | None
    printed: float | None
    unit: str = "%"  # empty for points

    @property
    def title(self) -> str:
        return f"{self.label} over {self.baseline or 'the best other row'}"

    def text(self, value: float | None) -> str:
        """`+1.25%`, or in points `+1.25`; empty without a value."""
        return "" if value is None else f"{value:+.2f}{self.unit}"


@dataclass(frozen=True)
class StudyTable:
    study: StudyInputs
    dataset: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    ranks: tuple[Rank, ...]
    points: tuple[Point, ...]
    is_printed: bool  # whether the paper prints numbers for the data set
    gains: dict[Column, tuple[Gain, ...]] = field(default_factory=dict)  # percent: of study.metric alone
    # by the method of a row, compared with its control in study.metric: one family
    verdicts: dict[str, Pair] = field(default_factory=dict)
    is_of_ensembles: bool = False  # whether each row has the numbers of its ensembles

    @property
    def control(self) -> str:
        """The label of the row that the others are compared with, or `its baseline` of several; empty without
        comparisons."""
        methods = {pair.second for pair in self.verdicts.values()}
        labels = [line.label for line in self.lines if line.method in methods]
        return "its baseline" if len(methods) > 1 else next(iter(labels), "")

    @property
    def charted_gains(self) -> dict[Column, tuple[Gain, ...]]:
        """Those in percent."""
        return self.gains if self.study.gain == "percent" else {}


def outcome_of(pair: Pair) -> str:
    """The verdict on a row. Of a number of order one, none is better."""
    outcome = pair.verdict.outcome
    return {"better": "higher", "worse": "lower"}.get(outcome, outcome) if is_plain(pair.metric) else outcome


def is_plain(metric: str) -> bool:
    """Whether a metric is not a share."""
    return metric in (*PLAIN, *OF_HISTORY, *COSTS)
