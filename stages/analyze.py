"""Embeddings of every run -> one table of what generalises, and its curves."""

import csv
from itertools import product
from pathlib import Path

from pipeline.analysis.analyze import COLUMNS, analyze, numbers
from pipeline.config.inputs import AnalyzeInputs, read_inputs
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.runtime.stage import main


def run() -> None:
    """Analyses the embeddings of all data sets, methods and seeds of the run."""
    inputs = read_inputs(AnalyzeInputs, "analyze").settings
    axes, how = inputs.run, inputs.analyze
    transfer = how.transfer_splits, how.transfer_classes, how.transfer_ridge
    cells = product(axes.datasets, axes.methods, axes.seeds)
    runs = analyze(Path("data/embeddings"), cells, how.histogram_bins, how.pairs, *transfer)
    with atomic_directory(Path("data/analysis")) as directory:
        with (directory / "table.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(
                {name: "" if value is None else value for name, value in one.row.items()} for one in runs
            )
        write_json(
            directory / "analysis.json",
            {"runs": [{"row": one.row, "curves": one.curves, "files": one.files} for one in runs]},
        )
    write_json(Path("data/metrics/analysis.json"), numbers(runs))


if __name__ == "__main__":
    main(run)
