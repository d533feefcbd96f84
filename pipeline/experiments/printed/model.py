"""Reads the tables of the papers, one YAML file each, into rows: one per printed row and group of columns.

A file has tables. A table has groups of columns (a data set, the setting of its evaluation, metrics under the
names of this project) and rows. The `values` of a row are its cells as printed, with `|` between groups:

    78.98       a number as printed: percent, except for the metrics of PLAIN
    69.29±0.11  with its deviation
    82.6!       unreliable; a note gives the reason
    -           not given
    ?           printed, but not legible

Conditions (`backbone` by the name in a recipe, `dim`, `size` in pixels) are read from the row, else from the
group, else from the table; null means "not stated". A tag of weights in `backbone` (`resnet50.tv_in1k`:
torchvision's) is part of the condition; without a tag any weights of the network meet it. `method` is the
recipe that reproduces the row, and `recipe` contains the values that its resolved recipe must have. `loss_of`
is a recipe with the same loss whose other values differ. `quoted`: the paper did not train the row: it
copies it from another paper, or evaluates weights of others. `reduced`: by PCA after training.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from unseen.runtime.errors import UserError
from unseen.runtime.settings import Count, Scalar, Strict

PAPERS = ("crt", "multihead", "gsp", "irt")
PLAIN = ("embedding_density", "spectral_decay")  # numbers of order one; everything else is percent
Setting = Literal["conventional", "query-gallery", "mlrc-separated", "mlrc-concatenated", "revisited"]
Dataset = Literal["cub", "cars", "sop", "inshop", "landmarks"]
_CELL = re.compile(r"(?P<value>\d+(?:\.\d+)?)(?:±(?P<deviation>\d+(?:\.\d+)?))?(?P<mark>!?)")
_METRIC = re.compile(
    r"recall_at_\d+|map_at_r|embedding_density|spectral_decay|(roxford5k|rparis6k)_(easy|medium|hard)_map"
)


class Number(Strict):
    """A cell as printed."""

    text: str
    deviation: str | None = None  # of 81 ensembles
    reliable: bool = True

    @property
    def value(self) -> float:
        return float(self.text)


class Row(Strict):
    """A printed row for one data set and setting."""

    paper: str
    table: str  # its number, or a section
    name: str
    method: str | None
    loss_of: str | None
    recipe: dict[str, Scalar | None]  # dotted field -> value
    dataset: Dataset
    setting: Setting
    backbone: str | None
    dim: int | None
    size: int | None
    reduced: bool
    quoted: bool
    metrics: dict[str, Number]
    unreadable: tuple[str, ...]
    note: str

    @property
    def source(self) -> str:
        """`CRT table 3`."""
        return f"{names()[self.paper]} {f'table {self.table}' if self.table.isdigit() else self.table}"

    @property
    def protocol(self) -> Literal["selected", "published"]:
        """The training protocol of the row: `selected` where the folds of MLRC or the validation models of
        SfM-120k choose the iterate, else `published`, all train classes."""
        held_out = self.setting.startswith("mlrc") or self.setting == "revisited"
        return "selected" if held_out else "published"


class Conditions(Strict):
    """The conditions of a row, of a group of columns, or of a table."""

    backbone: str | None = None
    dim: Count | None = None
    size: Count | None = None


class Columns(Conditions):
    """A group of columns."""

    dataset: Dataset
    metrics: tuple[str, ...] = Field(min_length=1)
    setting: Setting = "conventional"
    label: str = ""
    recipe: dict[str, Scalar | None] = Field(default={})

    @model_validator(mode="after")
    def _known(self) -> "Columns":
        unknown = [name for name in self.metrics if _METRIC.fullmatch(name) is None]
        if unknown or len(set(self.metrics)) < len(self.metrics):
            raise ValueError(f"metrics must be known names, each once, got {', '.join(self.metrics)}")
        return self


class Printed(Conditions):
    """A row of a table in a file."""

    name: str
    values: str
    method: str | None = None
    loss_of: str | None = None
    recipe: dict[str, Scalar | None] = Field(default={})
    quoted: bool | None = None  # None: the value of the table
    reduced: bool = False
    note: str = ""
    notes: dict[Dataset, str] = Field(default={})  # notes for one data set each

    @model_validator(mode="after")
    def _has_method(self) -> "Printed":
        if self.method is None and (self.recipe or self.loss_of):
            raise ValueError(f"row {self.name}: recipe and loss_of need a method")
        return self


class Table(Conditions):
    """A table of a paper."""

    table: str
    what: str
    columns: tuple[Columns, ...] = Field(min_length=1)
    rows: tuple[Printed, ...] = Field(min_length=1)
    quoted: bool = False

    @model_validator(mode="after")
    def _cells(self) -> "Table":
        for row in self.rows:
            cells_of = groups(row.values)
            expected = [len(group.metrics) for group in self.columns]
            if [len(group) for group in cells_of] != expected:
                sizes = [len(group) for group in cells_of]
                raise ValueError(
                    f"table {self.table}, row {row.name}: groups of {expected} cells expected, got {sizes}"
                )
            for group, cells in zip(self.columns, cells_of, strict=True):
                invalid = [cell for cell in cells if cell not in "-?" and _CELL.fullmatch(cell) is None]
                if invalid:
                    raise ValueError(
                        f"table {self.table}, row {row.name}: {invalid[0]!r} is not a valid cell"
                    )
                if any(cell.endswith("!") for cell in cells) and not (row.note or group.dataset in row.notes):
                    raise ValueError(
                        f"table {self.table}, row {row.name}: a cell is marked with !, but there is no note"
                    )
        return self


class PrintedCost(Strict):
    """The printed cost of a network. `size`: the side of a square image in pixels; None: of the images that
    the note names."""

    table: str
    network: str  # without the tag of its weights
    size: Count | None = None
    parameters: str = ""  # as printed, such as 23M
    gflops: float
    imagenet: float | None = None  # top-1 accuracy in percent, which the project does not evaluate
    note: str = ""


class Paper(Strict):
    """The content of a file: the tables of a paper."""

    key: Literal["crt", "multihead", "gsp", "irt"]
    name: str
    title: str
    authors: str
    venue: str
    selection: str  # how the paper selects the iterate that it reports
    left_out: tuple[str, ...]
    costs: tuple[PrintedCost, ...] = ()
    tables: tuple[Table, ...]


def read(text: str, where: str) -> Paper:
    """The paper in a YAML text. Raises UserError with `where` and the first mistake."""
    try:
        return Paper.parse(YAML(typ="safe").load(text))
    except MarkedYAMLError as error:
        raise UserError(f"{where} is not valid YAML: {error}.", "Correct that line.") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{where}: {key}: {first['msg']}.",
            "Correct it; pipeline/experiments/printed/model.py describes the format.",
        ) from None


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, in the order of PAPERS."""
    texts = {key: files(__package__).joinpath(f"{key}.yaml").read_text(encoding="utf-8") for key in PAPERS}
    return tuple(read(text, f"pipeline/experiments/printed/{key}.yaml") for key, text in texts.items())


@cache
def names() -> dict[str, str]:
    """Key -> short name of a paper."""
    return {paper.key: paper.name for paper in papers()}


@cache
def rows() -> tuple[Row, ...]:
    """All printed rows with a number or an illegible cell for a data set, in the order of the papers."""
    all_rows = [
        row
        for paper in papers()
        for table in paper.tables
        for printed in table.rows
        for group, cells in zip(table.columns, groups(printed.values), strict=True)
        if (row := _row(paper, table, printed, group, cells)) is not None
    ]
    return tuple(all_rows)


def quoted_methods() -> dict[str, bool]:
    """Each method that the papers quote, by its printed name, and whether a recipe reproduces a row of it."""
    trained: dict[str, bool] = {}
    for row in rows():
        if row.quoted:
            trained[row.name] = trained.get(row.name, False) or row.method is not None
    return trained


def printed_cost(network: str, size: int) -> PrintedCost | None:
    """The printed cost of a network, with or without the tag of its weights, on square images of this side;
    None if no paper prints it."""
    costs = (cost for paper in papers() for cost in paper.costs)
    name = network.partition(".")[0]
    return next((cost for cost in costs if (cost.network, cost.size) == (name, size)), None)


def published(dataset: str, method: str) -> list[Row]:
    """The rows of a data set that recipe `method` reproduces, then rows of other recipes with its loss."""
    of_dataset = [row for row in rows() if row.dataset == dataset]
    reproduced = [row for row in of_dataset if row.method == method]
    return reproduced + [row for row in of_dataset if row.loss_of == method]


def _row(paper: Paper, table: Table, printed: Printed, group: Columns, cells: list[str]) -> Row | None:
    metrics = {
        name: _number(cell) for name, cell in zip(group.metrics, cells, strict=True) if cell not in "-?"
    }
    unreadable = tuple(name for name, cell in zip(group.metrics, cells, strict=True) if cell == "?")
    if not metrics and not unreadable:
        return None
    return Row(
        paper=paper.key,
        table=table.table,
        name=", ".join(filter(None, (printed.name, group.label))),
        method=printed.method,
        loss_of=printed.loss_of,
        recipe={**printed.recipe, **group.recipe} if printed.method else {},
        dataset=group.dataset,
        setting=group.setting,
        quoted=table.quoted if printed.quoted is None else printed.quoted,
        reduced=printed.reduced,
        metrics=metrics,
        unreadable=unreadable,
        note=" ".join(filter(None, (printed.note, printed.notes.get(group.dataset, "")))),
        **{name: stated(name, printed, group, table) for name in Conditions.model_fields},
    )


def stated(name: str, *places: Conditions) -> Any:
    """The condition from the first place that contains it; its value may be null."""
    return next((getattr(place, name) for place in places if name in place.model_fields_set), None)


def groups(values: str) -> list[list[str]]:
    """The cells of a row, by group."""
    return [group.split() for group in values.split("|")]


def _number(cell: str) -> Number:
    match = _CELL.fullmatch(cell)
    assert match is not None, "Table validates every cell"
    return Number(text=match["value"], deviation=match["deviation"], reliable=not match["mark"])
