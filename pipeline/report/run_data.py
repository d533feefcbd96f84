"""What the report of a run shows."""

from dataclasses import replace
from pathlib import Path

from unseen.config.inputs import ReportInputs
from unseen.report.comparison import control_of
from unseen.report.report_data import ReportData, read_report_data
from unseen.runtime.revision import revision_of


def data_of_run(inputs: ReportInputs) -> ReportData:
    """The results below data/ of the current directory. Raises UserError for a file that is missing or
    damaged."""
    axes = inputs.run
    data = read_report_data(
        Path("data"),
        axes.datasets,
        methods=axes.methods,
        seeds=axes.seeds,
        sweeps=inputs.sweeps,
        ensembles=axes.ensembles,
    )
    return replace(
        data,
        like=inputs.like,
        revision=revision_of(Path()),
        costs=inputs.costs,
        studies=inputs.studies,
        own_photos=inputs.own_photos,
        control=inputs.report.control or control_of(inputs.studies, axes.methods),
    )
