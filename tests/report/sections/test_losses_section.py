"""Loss terms: one chart per method, one line per term."""

import pytest

from unseen.report.dataset import DataSet
from unseen.report.sections.losses import content


@pytest.mark.slow
def test_every_term_of_every_method_is_drawn(birds: DataSet) -> None:
    charts = content(birds)["curves"]
    assert len(charts) == 3
    for chart in charts:
        for term in ("sum", "diversity", "pair"):
            assert f">{term}</text>" in chart
        assert "covariance" not in chart, "gradient noise is not a loss term"
