"""Networks, their initial weights, and the reliability of the selected iterate."""

from dataclasses import replace

from tests.report.page_reader import Element
from unseen.report.networks import few_validation_classes, gallery_sizes, networks, protocols, seeds_differ
from unseen.report.report_data import ReportData, RunResults


def test_the_network_of_each_method_is_named_near_the_top(page: Element, inputs: ReportData) -> None:
    lines = [line.text() for line in page.first("ul", **{"class": "networks"}).all("li")]
    assert lines == [
        "good and fair: test_resnet, random initial weights, 12 dimensions, 64 px input",
        "poor: test_resnet, pretrained weights, 12 dimensions, 64 px input",
    ]
    equal = replace(inputs, methods=("good", "fair"))
    assert [network.methods for network in networks(equal, "birds")] == ["both methods"]


def test_published_weights_are_named(inputs: ReportData) -> None:
    runs = [run for run in inputs.runs if run.method == "poor"]
    backbone = runs[0].recipe["recipe"]["backbone"] | {"name": "resnet50.tv_in1k"}
    recipe = runs[0].recipe["recipe"] | {"backbone": backbone}
    named = [replace(run, recipe=run.recipe | {"recipe": recipe}) for run in runs]
    (network,) = networks(replace(inputs, methods=("poor",), runs=named), "birds")
    assert network.backbone == "resnet50.tv_in1k"
    assert network.weights == ("pretrained weights (torchvision, IMAGENET1K_V1; ImageNet-1k; 76.1% top-1)")
    backbone["checkpoint"] = "own.pth"
    (network,) = networks(replace(inputs, methods=("poor",), runs=named), "birds")
    assert network.weights == "weights from a checkpoint"


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


def test_the_sizes_of_both_galleries_are_on_the_page(inputs: ReportData, html: str) -> None:
    counts = inputs.shards["birds"].manifest["counts"]
    held_out = {counts["train"]["classes"] - run.recipe["classes"] for run in inputs.runs}
    assert len(held_out) == 1
    sizes = (
        f"has {held_out.pop()} classes, that of test {counts['test']['classes']} classes: recall is higher"
    )
    assert sizes in gallery_sizes(inputs, "birds")
    assert sizes in html
    published = replace(inputs, runs=[_with_protocol(run, "published") for run in inputs.runs])
    assert gallery_sizes(published, "birds") == "", "nothing is validated"


def test_runs_of_other_protocols_select_no_iterate(inputs: ReportData) -> None:
    runs = [_with_protocol(run, "published") for run in inputs.runs]
    few = [replace(run, recipe=run.recipe | {"classes": run.recipe["classes"] + 1}) for run in runs]
    assert few_validation_classes(replace(inputs, runs=few), "birds") == ""


def test_the_protocol_of_each_method_is_stated(inputs: ReportData, html: str) -> None:
    sentence = "Training protocol selected: the iterate is selected on held-out train classes."
    assert protocols(inputs, "birds") == sentence
    assert html.count(sentence) == 2, "beside the results and beside the pairs of methods"
    runs = [_with_protocol(run, "published") if run.method == "fair" else run for run in inputs.runs]
    assert protocols(replace(inputs, runs=runs), "birds") == (
        "Training protocols: selected (the iterate is selected on held-out train classes) for good and poor; "
        "published (all train classes, the published length, the last iterate) for fair. "
        "Methods of different protocols also differ in what they were trained on."
    )


def _with_protocol(run: RunResults, name: str) -> RunResults:
    recipe = run.recipe["recipe"]
    changed = recipe | {"training": recipe["training"] | {"protocol": name}}
    return replace(run, recipe=run.recipe | {"recipe": changed})


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
