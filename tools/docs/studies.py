"""Writes docs/studies.md from the studies: `python -m tools.docs.studies > docs/studies.md`."""

import sys
from collections.abc import Iterator

from unseen.cli.study import Line, coverage, line_of
from unseen.experiments.catalogue import studies
from unseen.experiments.printed.model import papers

_STATES = {
    "complete": "the command trains each row that the paper trained, and the report compares them",
    "partial": "as complete, without the parts that the note names",
    "command": "another command shows the item",
    "unavailable": "cannot be obtained; the note gives the reason",
}
_WHOLE = """\
An item is whole if it is complete or has a command. A complete table has all data sets of the printed one.
Rows that the paper quotes, or evaluates with weights of others, stay as printed beside ours, unless their
method has a recipe. What the paper does not state, such as the values of an axis, the study chooses. The
note names both.
"""
_HEAD = """# Studies

A study is a table or figure of a paper as data: rows (a method and changes of its recipe), data sets, seeds,
protocol, printed numbers and axes. One command trains the missing rows and builds the report:

```bash
unseen study crt-table-8 --mini                          # the rows on the built-in set, in minutes
unseen study crt-table-8 --datasets cub --seeds 0 1 2    # the table
unseen study crt-table-8 --cost                          # its price, without a training
unseen study --list                                      # the list below
```

- The command sets `run.datasets`, `run.methods` and `run.seeds` in `params.yaml`, empties `run.sweeps`
  (except for studies with `search`) and `run.ensembles` (except for MLRC studies), and prints what it
  changed. `--no-run` only sets them. `git checkout params.yaml` restores the file.
- A row is a method of the run: `crt-table-8-k1-16`. `unseen recipe cub crt-table-8-k1-16` prints its recipe.
  It has the published layers of its method and its own changes. Changes in `params.yaml` do not apply to it
  (`methods.<m>`, `datasets.<d>.recipe`, `datasets.<d>.methods`). Blocks `train`, `export`, `evaluate`,
  `weights` and `datasets.<d>.source` do. No library downloads the weights of BN-Inception: name your copy in
  block `weights` ([recipes](recipes.md#layers)).
- A data set with source settings of a study is another data set of the run, with the settings in its name:
  `cifar10-split-images`. Its recipes and other settings are those of `cifar10`. Printed numbers of `cifar10`
  are not compared with it.
- A row is trained once. Rows of several papers' tables with the same training have one name. A second study,
  another seed or a new row trains only what is missing.
- Rows are trained by the protocol of the papers, `published` (all train classes, last iterate). Landmarks and
  MLRC select on held-out images; ProxyNCA++ has `refit`, because its schedule follows validation.
- On the small sets (`--mini`: `parts`) the data set defines network, images, dimensions, batch, optimizer
  and schedule. A row keeps the other changes and the axes of the study. DeiT becomes a small transformer.
- The report has a card per data set with the printed table, our mean and deviation over seeds, the
  difference, the conditions that differ, and the rank correlation of the order (Spearman). One numeric axis
  gives a line chart, two give a heat map. Beside the report, `data/report/studies/<study>/` contains the
  table over all data sets of the run as CSV, LaTeX and Markdown, with intervals over classes and the gains
  over baselines, and the figures of each data set in the form of the paper as SVG and PDF.
- Each row is compared with the `control` of the study by the [rule for better](statistics.md), in its metric:
  a study of 14 rows is a family of 13 comparisons. If each row of `baselines` has a baseline, these pairs are
  the family. The control of a run that is one study is also that of the other cards of the page, unless
  `report.control` names one.
- `--cost` (also of `unseen run`) prints the price of all trainings, those of folds and trials included, and
  starts none: steps, TFLOP and bytes of a step, memory, and MB for each further image of a batch; hours on
  four GPUs at least (a roofline: a real GPU takes longer), and hours here by a measured step; disk. A step is
  computed with shapes alone, without weights, data or a GPU, in 5 to 30 s, and kept for its recipe. Seconds
  here are CPU seconds over the threads, as if no other program ran. What this machine has too little memory
  for is an error, which names `train.images_per_pass`. A data set whose size is known after stage ingest is
  priced as 100 classes with 5,000 images, and named.
- `python benchmarks/cost.py` compares the price with trainings of 13 methods with 8 images. In one run on two
  shared cores it was 0.95 to 1.06 of the measured memory and 0.89 to 1.02 of the measured CPU seconds; the
  worst is `crt`, with 11% too few seconds (`benchmarks/results.json`). The memory on a CPU contains one
  fitted factor for all methods, 1.28, for freed blocks that the heap keeps.

## Your own studies

A file `studies/<any name>.yaml` contains studies by name, in the same form as
`pipeline/recipes/studies/*.yaml`:

```yaml
my-study:
  title: Margin and dimension
  methods: # rows, as block `methods` of params.yaml
    small: {like: ms, dim: 32}
    large: {like: ms, dim: 64}
  space: # each row at each point of these grids
    loss.threshold: {grid: [0.3, 0.5, 0.7]}
  recipe: {training.iterations: 200} # for all rows
  datasets: [parts]
  seeds: [0, 1]
  protocol: selected
  metric: map_at_r
```

| key | content |
|---|---|
| `title` | one line |
| `methods` | row -> `{like: method, field: value, ...}`; a published method or one of `params.yaml` |
| `methods.<row>.label` | the name of the row in tables and figures |
| `space` | dotted field -> `{grid: [...]}`, with `tied: [...]` for further fields that get the same value |
| `recipe` | changes of all rows |
| `datasets`, `seeds` | defaults of `--datasets` and `--seeds`; seeds: [0] |
| `sources` | data set -> settings of its source: `{parts: {seed: 1}}`; a list of them for several sets |
| `start` | a study that the command trains before; a recipe names its model as `backbone.checkpoint` |
| `protocol` | `published` (default), `selected` or `refit` |
| `metric` | of charts and rank correlation, such as `map_at_r`; default `recall_at_1` |
| `axes` | field -> symbol: the axes of the chart; default: the numeric grids of `space` |
| `baselines` | label of a row -> label of its baseline, or `null`: the highest other row of each column |
| `control` | label of the row that all others are compared with (Holm); default: the first row |
| `gain` | `percent` (default): relative differences of `metric`, also as a chart; `points`: of each column |
| `figures` | of `bars`, `epochs`, `histograms`, `energy`, `hulls`, `attributes`, `positions`, `gallery` |
| `ensemble` | `true`: numbers of MLRC ensembles |
| `search` | the same search for every row: `{total: 8, space: {...}}`, see below |
| `reduce`, `analyze_reduce` | as `evaluate.reduce` and `analyze.reduce`, for these rows |
| `source`, `table` | a printed table: `{paper: crt, item: table 8}`, `"8"` |

A row of your study keeps all its changes on every data set.

### The same search for every row

Rows are comparable if their settings were searched with the same effort:

```yaml
my-study:
  search:
    total: 8
    space:
      optimizer.learning_rate: {loguniform: [1.0e-5, 1.0e-3]}
```

- `unseen study my-study` then also sets `run.sweeps` to the rows: each row is a [sweep](recipes.md#sweeps)
  with `total` trials. `iterations`, `scheduler` (`none` by default, or `asha`), `grace`, `searcher`, `seeds`
  and `seed` (of the draws) are those of a sweep, and the same for all rows. Blocks `sweep.<m>` and
  `run.budget` of params.yaml do not apply; `sweep.<row>: {concurrent: 4}` does.
- Without `space` each row has the published space of its method. A space with fewer combinations than
  `total` is an error. Rows with different `training.patience` are an error.
- Trials are compared on held-out train classes. The report lists trials, best values and their metric for
  each row. A sweep feeds no other stage: write the best values into the rows, and the same command trains
  them without another search.
"""


def markdown() -> str:
    """The page, without the studies of a user."""
    lines = [line_of(item) for item in studies().values() if item.is_published]
    parts = [_HEAD, "## Tables and figures of the papers", ""]
    parts += [f"- {state}: {meaning}." for state, meaning in _STATES.items()]
    parts += [
        "",
        _WHOLE,
        coverage(),
        "The items that are not whole, and why:",
        "",
        "| item | reason |",
        "| --- | --- |",
    ]
    parts += [f"| {line.item} | {line.reason} |" for line in lines if line.state == "partial"]
    for paper in papers():
        own = [line for line in lines if line.paper == paper.name]
        parts += ["", f"### {paper.name}", "", *_table(own)]
    return "\n".join([*parts, ""])


def _table(lines: list[Line]) -> Iterator[str]:
    yield "| item | command | rows | state | note |"
    yield "| --- | --- | --- | --- | --- |"
    for line in lines:
        command = f"`unseen study {line.name}`" if line.rows else ""
        cells = (f"{line.item}: {line.title}", command, line.rows, line.state, line.note)
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
