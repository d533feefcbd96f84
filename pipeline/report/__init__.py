"""The report: numbers, curves and galleries of a run on one HTML page that opens offline.

report_data.py reads the results of the other stages. dataset.py computes what the sections of a data set
share, with summary.py (means over seeds), joint_intervals.py, comparison.py (paired comparisons) and
analysis.py. sections/ has one module and one template per section; svg.py draws their
figures. page.py lists the sections in the order of the page.
"""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.report.dataset import DataSet
    from unseen.report.words import counted, interval, number, percent
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["DataSet", "counted", "interval", "number", "percent"]
