"""Data sets whose runs start from other weights."""

from dataclasses import replace

from unseen.report.dataset import DataSet


def with_initial_weights(data_set: DataSet, pretrained: bool, checkpoint: str | None) -> DataSet:
    """The data set with these settings of the backbone in the recipe of every run."""

    def change(recipe: dict) -> dict:
        backbone = recipe["recipe"]["backbone"] | {"pretrained": pretrained, "checkpoint": checkpoint}
        return recipe | {"recipe": recipe["recipe"] | {"backbone": backbone}}

    runs = [replace(run, recipe=change(run.recipe)) for run in data_set.report_data.runs]
    return replace(data_set, report_data=replace(data_set.report_data, runs=runs))
