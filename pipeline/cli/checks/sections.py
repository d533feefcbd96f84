"""The properties of a section of the report, on the results of the last run in the current directory."""

from unseen.cli.checks.common import require
from unseen.config.inputs import ReportInputs, resolved
from unseen.config.stages import OutsideSection, ReportSettings
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.page import OwnSection, rendered, template_environment
from unseen.report.pictures import Pictures
from unseen.report.report_data import ReportData
from unseen.report.run_data import data_of_run


def html(settings: OutsideSection) -> None:
    """Content and template give HTML for each data set of the last run, and two pages are equal."""
    data = data_of_run(resolved(ReportInputs, "report").settings)
    first, second = (_html(settings, data) for _ in range(2))
    require(first == second, "Two pages differ.", "Draw nothing at random, and sort what a set contains.")


def _html(settings: OutsideSection, data: ReportData) -> list[str]:
    """The section of each data set; empty if it is omitted."""
    size = ReportSettings()
    gallery = GallerySize(size.queries, size.neighbours, size.thumbnail)
    environment, section = template_environment(Pictures()), OwnSection(settings)
    sets = (DataSet(data, name, f"set-{number}", gallery) for number, name in enumerate(data.datasets))
    return [rendered(section, dataset, environment) for dataset in sets]
