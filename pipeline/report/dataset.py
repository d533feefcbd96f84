"""One data set of the report: what its sections share, each computed once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unseen.data.shards import Shards
from unseen.report.analysis import Analysis, read_analysis
from unseen.report.comparison import Lead, Pair, compare_methods, lead_of
from unseen.report.joint_intervals import LANDMARKS, joint_intervals
from unseen.report.names import labels_of
from unseen.report.overlays import Overlay
from unseen.report.pictures import Thumbnail, thumbnails
from unseen.report.report_data import HistoryRow, ReportData, RunResults
from unseen.report.summary import Best, Summary, best_method, summarize
from unseen.report.svg import SERIES, dash_pattern


@dataclass(frozen=True)
class MethodStyle:
    """A method and the line that marks it in tables and charts."""

    id: str  # of its recipe on the page
    name: str
    position: int
    dashes: str  # of an SVG line, empty for a solid one
    like: str = ""  # of a variant: the published method that it is like

    @property
    def series(self) -> int:
        """The number of its colour."""
        return self.position % len(SERIES)


def styles_of(
    methods: Sequence[str], anchor: str, like: Mapping[str, str] | None = None
) -> tuple[MethodStyle, ...]:
    """The style of each method, by its position in the run. like: variant -> published method."""
    variants = {name: other for name, other in (like or {}).items() if name != other}
    return tuple(
        MethodStyle(f"{anchor}-recipe-{i}", name, i, dash_pattern(i), variants.get(name, ""))
        for i, name in enumerate(methods)
    )


@dataclass(frozen=True)
class GallerySize:
    """`queries` per method with `neighbours` matches each; pictures are at most `thumbnail` pixels wide and
    high.
    """

    queries: int
    neighbours: int
    thumbnail: int


@dataclass(frozen=True)
class Picture:
    """An image of a gallery. `right` is None for a query itself."""

    row: int
    image: str  # data URI
    class_name: str
    label: str  # the part of the class name that differs between classes
    source: str  # path within the data set
    right: bool | None = None
    similarity: float | None = None
    overlay: Overlay | None = None  # its heat map


@dataclass(frozen=True)
class DataSet:
    """`anchor` is the prefix of all HTML ids of the data set."""

    report_data: ReportData
    name: str
    anchor: str
    gallery: GallerySize

    def runs(self, method: str | None = None) -> list[RunResults]:
        """The runs of one method or of all, in the order of the run axes."""
        return self.report_data.of(self.name, method)

    @property
    def shards(self) -> Shards:
        return self.report_data.shards[self.name]

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len(self.report_data.seeds)

    @property
    def confidence(self) -> str:
        """The confidence of all intervals, in percent."""
        return f"{self.runs()[0].protocol['confidence']:.0%}"

    @property
    def is_landmarks(self) -> bool:
        """Whether the data set has a ground truth; then intervals are over queries instead of classes."""
        return LANDMARKS in self.runs()[0].queries.column_names

    @property
    def units(self) -> str:
        """What the intervals are over."""
        return "queries" if self.is_landmarks else "classes"

    @cached_property
    def labels(self) -> list[str]:
        """The short name of each class."""
        return labels_of(self.shards.class_names)

    @cached_property
    def thumbnail(self) -> Thumbnail:
        return thumbnails(self.shards, self.gallery.thumbnail)

    def picture(self, row: int, image: str | None = None, **of_match: Any) -> Picture:
        """The picture of an image. image: a data URI instead of its thumbnail. of_match: right, similarity,
        overlay."""
        label = self.shards.labels[row]
        return Picture(
            row,
            image or self.thumbnail(row),
            self.shards.class_names[label],
            self.labels[label],
            self.shards.source(row),
            **of_match,
        )

    @cached_property
    def styles(self) -> dict[str, MethodStyle]:
        return {method.name: method for method in self.methods}

    @cached_property
    def methods(self) -> tuple[MethodStyle, ...]:
        return styles_of(self.report_data.methods, self.anchor, self.report_data.like)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each method, which selects its line style."""
        return {method.name: method.position for method in self.methods}

    @cached_property
    def histories(self) -> dict[str, list[list[HistoryRow]]]:
        """The history of each seed of each method that has one."""
        histories = {
            name: [run.history for run in self.runs(name) if run.history] for name in self.report_data.methods
        }
        return {name: group for name, group in histories.items() if group}

    @cached_property
    def summary(self) -> Summary:
        methods = self.report_data.methods if self.seeds > 1 else ()
        joint = {name: joint_intervals(self.runs(name)) for name in methods}
        return summarize([(run.method, run.metrics) for run in self.runs()], self.report_data.methods, joint)

    @cached_property
    def best(self) -> Best | None:
        """The method with the highest headline metric."""
        return best_method(self.summary, self.summary.headline)

    @cached_property
    def pairs(self) -> list[Pair]:
        """The paired comparisons of the methods; none for a landmark set."""
        return compare_methods(self.report_data, self.name, self.summary)

    @property
    def lead(self) -> Lead | None:
        """The verdicts on the best method; None where it was not compared."""
        return lead_of(self.pairs, self.best.method, self.best.metric) if self.best else None

    @cached_property
    def analysis(self) -> Analysis:
        return read_analysis(self.report_data, self.name)
