"""Networks, their initial weights, and the reliability of the selected iterate."""

from dataclasses import replace

from pipeline.report.networks import few_validation_classes, networks, seeds_differ
from pipeline.report.report_data import ReportData
from tests.report.page_reader import Element


def test_the_network_of_each_method_is_named_near_the_top(page: Element, inputs: ReportData) -> None:
    lines = [line.text() for line in page.first("ul", **{"class": "networks"}).all("li")]
    assert lines == [
        "good and fair: test_resnet, random initial weights, 12 dimensions, 64 px input",
        "poor: test_resnet, pretrained weights, 12 dimensions, 64 px input",
    ]
    equal = replace(inputs, methods=("good", "fair"))
    assert [network.methods for network in networks(equal, "birds")] == ["both methods"]


def test_few_validation_classes_are_reported(inputs: ReportData) -> None:
    def held_out(*counts: int) -> str:
        classes = inputs.shards["birds"].manifest["counts"]["train"]["classes"]
        runs = [
            replace(run, recipe=run.recipe | {"classes": classes - count})
            for run, count in zip(inputs.runs, counts, strict=True)
        ]
        return few_validation_classes(replace(inputs, runs=runs), "birds")

    assert held_out(10, 10, 12) == ""
    assert "on only 9 to 12 classes" in held_out(9, 10, 12)
    one_validation = replace(inputs, runs=[replace(run, history=run.history[:1]) for run in inputs.runs])
    assert few_validation_classes(one_validation, "birds") == "", "no iterate was selected"


def test_seeds_differ_if_they_draw_their_validation_classes(
    two_seeds_inputs: ReportData, inputs: ReportData
) -> None:
    assert seeds_differ(two_seeds_inputs, "birds")
    assert not seeds_differ(inputs, "birds"), "one seed"
    tuples = [
        replace(run, recipe=run.recipe | {"recipe": run.recipe["recipe"] | {"batch": {"sampling": "tuples"}}})
        for run in two_seeds_inputs.runs
    ]
    assert not seeds_differ(replace(two_seeds_inputs, runs=tuples), "birds"), (
        "the data set defines the classes"
    )
