"""The results of all stages -> one HTML page that opens offline."""

from pathlib import Path

from unseen.config.inputs import ReportInputs, read_inputs
from unseen.report.analysis import write_analysis
from unseen.report.page import build
from unseen.report.plots import write_plots
from unseen.report.position_files import write_positions
from unseen.report.run_data import data_of_run
from unseen.report.study_document import write_studies
from unseen.runtime.files import atomic_directory, remove_partial_files, write_json
from unseen.runtime.stage import main


def run() -> None:
    """Builds data/report/index.html from all data sets, methods and seeds of the run, the verdict of each
    data set as text (verdict.json), the table of the analysis (analysis.csv), and the files of its studies
    and heat maps; and data/plots, the curves of `dvc plots`."""
    inputs = read_inputs(ReportInputs, "report").settings
    settings = inputs.report
    for folder in ("data/metrics", "data/history"):  # both are in git and inputs of this stage
        remove_partial_files(Path(folder))
    data = data_of_run(inputs)
    page = build(
        data,
        settings.title,
        settings.queries,
        settings.neighbours,
        settings.thumbnail,
        own=settings.sections.values(),
    )
    with atomic_directory(Path("data/plots")) as directory:
        write_plots(data, directory)
    with atomic_directory(Path("data/report")) as directory:
        (directory / "index.html").write_text(page.html, encoding="utf-8")
        write_json(directory / "verdict.json", page.verdicts)
        write_analysis(data, directory / "analysis.csv")
        write_studies(data, directory / "studies")
        write_positions(data, directory / "positions")


if __name__ == "__main__":
    main(run)
