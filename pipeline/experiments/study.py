"""A study: a table or figure of a paper, or of a user, as data. A file contains studies by name.

    crt-table-8:
      title: Number of prototypes of the first branch
      source: {paper: crt, item: table 8}
      table: "8"                            # rows and numbers of pipeline/experiments/printed/crt.yaml
      axes: {embedding.prototypes: K1}      # one axis gives a line chart, two give a heat map
      datasets: [cub]

Rows are those of a printed table, those of `methods` (in the form of block `methods` of params.yaml), and
each of these at every point of `space`. A study without rows names the command that shows its item, or the
reason why it cannot be obtained.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from unseen.config.inputs import Form
from unseen.config.stages import Axis, RowSearch
from unseen.config.study_row import Protocol
from unseen.evaluation.settings import Reduce
from unseen.runtime.setting_names import Name
from unseen.runtime.settings import Seed, Strict


class Origin(Strict):
    """Where a paper prints the item."""

    paper: Literal["crt", "multihead", "gsp", "irt"]
    item: str  # `table 8`, `figure 5a`, `section 4.5`


class Study(Strict):
    """A table or figure."""

    title: str
    source: Origin | None = None  # None: of a user
    table: str | None = None  # a printed table of that paper, by its name in pipeline/experiments/printed
    # row -> {like: method, field: value, ...}, as block `methods` of params.yaml; a value may be a block.
    # label: the name of the row in the paper
    methods: dict[Name, dict[str, Any]] = Field(default={})
    # every combination of these grids, for each of the rows above; the vocabulary of a sweep's space
    space: dict[str, Axis] = Field(default={})
    recipe: dict[str, Any] = Field(default={})  # changes of all rows
    datasets: tuple[Name, ...] = ()
    # data set -> settings of its source, as `datasets.<d>.source` of params.yaml, or a list of them: as many
    # sets; {}: the data set as it is
    sources: dict[Name, dict[str, Any] | tuple[dict[str, Any], ...]] = Field(default={})
    start: Name | None = None  # a study that is trained before this one, as a recipe names a model of it
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    # published: all train classes, last iterate; landmark sets and MLRC select on held-out images
    protocol: Protocol = "published"
    metric: str = "recall_at_1"  # of charts and of the rank correlation
    axes: dict[str, str] = Field(default={})  # field -> symbol; empty: the numeric fields of `space`
    # row -> the row that it improves, both by their labels; null: in each column the highest other row
    baselines: dict[str, str | None] = Field(default={})
    # the label of the row that all others are compared with, as one family; None: the first row. With a
    # baseline for each row of `baselines` these pairs are the family
    control: str | None = None
    # percent: relative differences of `metric`, also as a chart; points: differences in each column
    gain: Literal["percent", "points"] = "percent"
    tied: tuple[str, ...] = ()  # fields that vary with an axis in the printed rows
    # fields that keep their value on the built-in sets, which define network, images and schedule
    kept: tuple[str, ...] = ()
    ensemble: bool = False  # numbers of MLRC ensembles: the study also sets run.ensembles
    search: RowSearch | None = None  # the same search for every row: the study also sets run.sweeps
    reduce: Reduce | None = None  # also embeddings reduced by PCA (evaluate.reduce)
    analyze_reduce: Reduce | None = None  # also histograms of reduced embeddings (analyze.reduce)
    figures: tuple[Form, ...] = ()  # of the rows, in files (pipeline/report/study_files.py)
    shows: str = ""  # what the report shows in addition to the table, and where
    missing: str = ""  # what of the item is not shown
    quoted: str = ""  # which columns the paper quotes, so that they stay as printed
    chosen: str = ""  # what the paper does not state, so that the study chooses it
    unprinted: str = ""  # what the paper does not print, so that nothing is compared with it
    command: str = ""  # without rows: the command that shows the item
    unavailable: str = ""  # without rows: why it cannot be obtained

    @model_validator(mode="after")
    def _consistent(self) -> "Study":
        if sum((self.has_rows, bool(self.command), bool(self.unavailable))) != 1:
            raise ValueError("give exactly one of: rows (`table` or `methods`), `command`, `unavailable`")
        if self.table and self.source is None:
            raise ValueError("`table` needs `source.paper`")
        if self.has_rows and not self.datasets:
            raise ValueError("`datasets` is missing")
        for name, each in self.sources.items():
            if name not in self.datasets:
                raise ValueError(f"sources.{name}: not in `datasets`")
            if not each or any("kind" in source for source in self.sources_of(name)):
                raise ValueError(f"sources.{name}: give settings of the source other than its kind")
        for name, row in self.methods.items():
            if not isinstance(row.get("label", name), str):
                raise ValueError(f"methods.{name}.label: give a text")
            if not isinstance(row.get("like"), str):
                raise ValueError(f"methods.{name}.like is missing: the method of the row")
        for field, axis in self.space.items():
            if axis.grid is None:
                raise ValueError(f"space.{field}: a study needs a grid")
        for name in sorted(_fields(self.space) & _fields(self.search.space if self.search else {})):
            raise ValueError(f"search.space.{name}: `space` gives the rows different values of this field")
        if len(self.axes) > 2:
            raise ValueError(f"axes: one or two fields, got {len(self.axes)}")
        return self

    def sources_of(self, dataset: str) -> tuple[dict[str, Any], ...]:
        """The settings of the source of each set of the study that is like a data set."""
        source = self.sources.get(dataset, {})
        return (source,) if isinstance(source, dict) else source

    @property
    def has_rows(self) -> bool:
        return bool(self.table or self.methods)

    @property
    def numeric_axes(self) -> dict[str, str]:
        """The fields of the chart and their symbols: `axes`, or at most two numeric grids."""
        if self.axes:
            return self.axes
        fields = {field: field for field, axis in self.space.items() if all(map(_is_number, axis.grid or ()))}
        return fields if len(fields) <= 2 else {}

    @property
    def item(self) -> str:
        """The item of the paper; empty for a study of a user."""
        return self.source.item if self.source else ""


def _fields(space: dict[str, Axis]) -> set[str]:
    return {name for field, axis in space.items() for name in (field, *axis.tied)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
