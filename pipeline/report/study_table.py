"""The table of a study on a data set: printed numbers, ours, their difference, and the rank correlation of
the order.
"""

from unseen.config.inputs import StudyInputs
from unseen.report.report_data import ReportData
from unseen.report.study_cells import StudyTable
from unseen.report.study_lines import columns_of, own_columns, own_lines, printed_lines, printed_of
from unseen.report.study_numbers import Numbers
from unseen.report.study_points import points_of
from unseen.report.study_ranks import rank_correlations, relative_gains
from unseen.report.summary import summarize


def study_table(report_data: ReportData, dataset: str, study: StudyInputs) -> StudyTable:
    """The table of a study that the run covers."""
    methods = list(dict.fromkeys(row.method for row in study.rows))
    summary = summarize(
        [(run.method, run.metrics) for run in report_data.of(dataset) if run.method in methods], methods
    )
    printed = [row for row in printed_of(study) if row.dataset == dataset]
    table = Numbers(report_data, dataset, summary)
    if printed:
        columns = tuple(dict.fromkeys(column for row in printed for column in columns_of(row)))
        lines = printed_lines(table, study, printed, columns)
    else:
        columns = own_columns(study, summary)
        lines = own_lines(table, study, columns)
    return StudyTable(
        study,
        dataset,
        columns=columns,
        lines=lines,
        ranks=rank_correlations(columns, lines, study.metric),
        points=points_of(table, study, printed),
        is_printed=bool(printed),
        gains=relative_gains(study, columns, lines),
    )
