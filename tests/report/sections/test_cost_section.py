"""Parameters and operations of each method, in the order of accuracy."""

from dataclasses import replace

from unseen.methods.settings import Cost
from unseen.report.dataset import DataSet
from unseen.report.sections.cost import content


def test_costs_stand_beside_accuracy(birds: DataSet) -> None:
    costs = {
        "birds": {
            "good": Cost(parameters=23_508_032, flops=8_174_272_512),
            "fair": Cost(parameters=378_880, flops=69_000_000),
            "poor": Cost(parameters=0, flops=0),
        }
    }
    known = content(replace(birds, report_data=replace(birds.report_data, costs=costs)))
    assert known is not None
    (good,) = birds.runs("good")
    rows = [(row["method"].name, row["parameters"], row["flops"], row["size"]) for row in known["rows"]]
    assert rows == [("good", "23.51", "8.17", 64), ("fair", "0.38", "0.07", 64), ("poor", "0.00", "0.00", 64)]
    assert known["rows"][0]["value"] == f"{100 * good.metrics['map_at_r']:.1f}"


def test_unknown_costs_have_no_section(birds: DataSet) -> None:
    assert content(birds) is None
