"""Embeddings and positions of all runs -> a table of their density, spectrum and similarities, its curves,
and the shares of weight on the object."""

import csv
from itertools import product
from pathlib import Path

from pipeline.analysis.analyze import COLUMNS, analyze, numbers
from pipeline.analysis.positions import object_share_table
from pipeline.analysis.verification import Intervals
from pipeline.config.inputs import AnalyzeInputs, read_inputs
from pipeline.ingest.sources.parts import creature_masks
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.runtime.stage import main


def run() -> None:
    """Analyses the embeddings of all data sets, methods and seeds of the run."""
    inputs = read_inputs(AnalyzeInputs, "analyze").settings
    axes, settings = inputs.run, inputs.analyze
    transfer = settings.transfer_splits, settings.transfer_classes, settings.transfer_ridge
    cells = list(product(axes.datasets, axes.methods, axes.seeds))
    intervals = Intervals(inputs.intervals.bootstrap, inputs.intervals.confidence, inputs.intervals.seed)
    bins, pairs = settings.histogram_bins, settings.pairs
    runs = analyze(Path("data/embeddings"), cells, bins, pairs, *transfer, intervals=intervals)
    masks = {dataset: creature_masks(source) for dataset, source in inputs.parts.items()}
    shares = object_share_table(Path("data/positions"), cells, masks)
    with atomic_directory(Path("data/analysis")) as directory:
        with (directory / "table.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for run in runs:
                writer.writerow({name: "" if value is None else value for name, value in run.row.items()})
        content = [{"row": run.row, "curves": run.curves, "files": run.files} for run in runs]
        write_json(directory / "analysis.json", {"runs": content, "object_shares": shares})
    write_json(Path("data/metrics/analysis.json"), numbers(runs, shares))


if __name__ == "__main__":
    main(run)
