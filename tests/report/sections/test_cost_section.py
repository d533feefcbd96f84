"""Parameters and operations of each method, in the order of accuracy."""

from dataclasses import replace

from tests.report.page_reader import read_page
from unseen.methods.settings import Cost
from unseen.report.dataset import DataSet
from unseen.report.page import template_environment
from unseen.report.pictures import Pictures
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
    assert not known["is_printed"]
    assert known["rows"][0]["value"] == f"{100 * good.metrics['map_at_r']:.1f}"


def test_printed_costs_stand_beside_those_of_the_network(birds: DataSet) -> None:
    data = birds.report_data
    recipe = data.runs[0].recipe["recipe"]
    backbone = recipe["backbone"] | {"name": "deit_small_patch16_224.fb_in1k"}
    recipe = recipe | {"backbone": backbone, "input": recipe["input"] | {"size": 224}}
    runs = [replace(run, recipe={"recipe": recipe}) for run in data.runs]
    changed = replace(
        data, runs=runs, costs={"birds": dict.fromkeys(data.methods, Cost(parameters=1, flops=1))}
    )
    known = content(replace(birds, report_data=changed))
    assert known is not None
    assert {(row["printed_parameters"], row["printed_flops"]) for row in known["rows"]} == {("22M", "8.4")}
    assert known["is_printed"]
    html = template_environment(Pictures()).get_template("cost.html").render(dataset=birds, **known)
    cells = [cell.text() for cell in read_page(html).first("tr", **{"data-cost": "good"}).all("td")]
    assert cells[1:6] == ["224", "0.00", "0.00", "22M", "8.4"]


def test_unknown_costs_have_no_section(birds: DataSet) -> None:
    assert content(birds) is None
