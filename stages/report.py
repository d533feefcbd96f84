"""Everything the other stages made -> one HTML page that opens offline."""

from pathlib import Path

from pipeline.config import Params, ReportSettings, RunSettings, settings
from pipeline.report.inputs import read_inputs
from pipeline.report.page import build
from pipeline.runtime.files import atomic_directory
from pipeline.runtime.stage import main


def run() -> None:
    """Builds data/report/index.html from all data sets, methods and seeds of the run."""
    params = Params.of_stage()
    axes, how = settings(params, "run", RunSettings), settings(params, "report", ReportSettings)
    inputs = read_inputs(Path("data"), axes.datasets, axes.methods, axes.seeds, axes.sweeps, axes.ensembles)
    page = build(inputs, how.title, how.queries, how.neighbours, how.thumbnail)
    with atomic_directory(Path("data/report")) as directory:
        (directory / "index.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(run)
