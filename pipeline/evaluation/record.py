"""The numbers of one training: means by test class, and values of the training as a whole."""

from typing import Any, NamedTuple

from pydantic import Field

from unseen.runtime.settings import Strict

FLOOR = "floor"  # the row of the features of a network, without a head and without training


class Run(NamedTuple):
    """One row of an experiment at one place (a data set, a fold, a network with a split), with one seed."""

    row: str
    place: str
    seed: int


class Record(Strict):
    """The numbers of a run."""

    settings: dict[str, Any]  # all that determines the numbers
    images: dict[str, int]  # of each test class with two images or more
    classes: dict[str, dict[str, float]]  # metric -> class -> mean over its images
    training: dict[str, float] = Field(default={})  # metric -> value
    cpu_seconds: float

    def mean(self, metric: str) -> float:
        """The mean over the test images of a metric of classes."""
        of_class = self.classes[metric]
        return sum(of_class[name] * images for name, images in self.images.items()) / sum(
            self.images.values()
        )
