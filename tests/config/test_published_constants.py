"""The values of published_constants.py equal those that params.yaml resolves to."""

from pathlib import Path
from typing import Any

import pytest

from tests.config.published_constants import SMALL_SETS, TABLE
from tests.params import resolve
from unseen.config.document import Params
from unseen.config.recipe_files import published
from unseen.data.settings import Input
from unseen.data.transforms import SplitMix64, random_crop
from unseen.networks.weights import published_weights

PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")
IMAGES = {"cub": 5_864, "cars": 8_054, "sop": 59_551, "inshop": 25_882}  # training images
# Epochs without the last, incomplete batch: of the new layers only, of all layers, and of one step of the
# schedule.
IN_EPOCHS: dict[str, dict[str, tuple[int, int, int | None]]] = {
    "multihead": dict.fromkeys(IMAGES, (5, 20, 10)),  # Multi-Head sec. 4.2; Proxy-Anchor code, ResNet-50
    "proxy_anchor": {
        "cub": (1, 60, 10),
        "cars": (1, 60, 20),
        "sop": (1, 60, 20),
        "inshop": (1, 60, 20),
    },  # Proxy-Anchor README
    "proxy_anchor_resnet50": {
        "cub": (5, 60, 5),
        "cars": (5, 60, 10),
        "sop": (5, 60, 20),
        "inshop": (5, 60, 20),
    },  # Proxy-Anchor README, commands for ResNet-50; the last two are ours
    "proxy_nca": {
        "cub": (5, 45, None),
        "cars": (5, 45, None),
        "sop": (5, 85, None),
        "inshop": (5, 85, None),
    },  # ProxyNCA++ code
    "soft_triple": dict.fromkeys(IMAGES, (0, 50, 19)),  # SoftTriple code
    "proxy_nca_original": {**dict.fromkeys(IMAGES, (0, 50, 1)), "cub": (0, 20, 1)},  # unofficial code
    "nsoftmax": dict.fromkeys(
        IMAGES, (1, 31, 16)
    ),  # normalised softmax README: 15 epochs, two steps, after one
}


def value_of(dataset: str, method: str, field: str) -> Any:
    value: Any = resolve(PARAMS, dataset, method)
    for part in field.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("datasets", "methods", "field", "value", "source"),
    TABLE,
    ids=[f"{row[1]}: {row[2]} on {row[0]}" for row in TABLE],
)
def test_a_recipe_has_its_published_constants(
    datasets: str, methods: str, field: str, value: Any, source: str
) -> None:
    for dataset in datasets.split():
        for method in methods.split():
            assert value_of(dataset, method, field) == value, f"{method} on {dataset}: {source}"


def test_every_recipe_has_constants() -> None:
    assert {method for row in TABLE for method in row[1].split()} == set(published("methods"))


@pytest.mark.parametrize("dataset", [*IMAGES, "folder", "landmarks"])
def test_pretrained_weights_are_named(dataset: str) -> None:
    for method in published("methods"):
        backbone = resolve(PARAMS, dataset, method).backbone
        assert backbone.pretrained
        assert backbone.name in published_weights(), f"{method} on {dataset}"


@pytest.mark.parametrize("method", IN_EPOCHS)
@pytest.mark.parametrize("dataset", IMAGES)
def test_lengths_are_complete_epochs(dataset: str, method: str) -> None:
    warmup, epochs, step = IN_EPOCHS[method][dataset]
    recipe = resolve(PARAMS, dataset, method)
    steps = IMAGES[dataset] // recipe.batch.size
    assert recipe.optimizer.new_layers_only == warmup * steps
    assert recipe.training.iterations == epochs * steps
    assert recipe.training.validate_every == steps
    if step is not None:
        assert step * steps in (recipe.schedule.every, *recipe.schedule.milestones)


@pytest.mark.parametrize(("width", "height"), [(256, 256), (500, 375), (320, 480), (1200, 300)])
def test_the_crop_of_irt_is_a_random_224_of_the_picture_squeezed_to_256(width: int, height: int) -> None:
    """In the picture squeezed to 256 x 256 the box is 224 wide and high and lies anywhere. Its sides are
    rounded to pixels of the original picture."""
    input = resolve(PARAMS, "cub", "irt_r").input
    boxes = [random_crop(width, height, SplitMix64(key), input) for key in range(300)]
    for _, _, crop_width, crop_height in boxes:
        assert abs(crop_width - width * 224 / 256) <= 0.5
        assert abs(crop_height - height * 224 / 256) <= 0.5
    lefts, tops = ([box[axis] for box in boxes] for axis in (0, 1))
    free_width, free_height = width - boxes[0][2], height - boxes[0][3]
    assert min(lefts) <= 0.05 * free_width < 0.95 * free_width <= max(lefts) <= free_width
    assert min(tops) <= 0.05 * free_height < 0.95 * free_height <= max(tops) <= free_height


@pytest.mark.parametrize("dataset", [*SMALL_SETS.split(), "tokens"])
def test_all_methods_crop_a_small_set_equally(dataset: str) -> None:
    """The crop shares of a small data set override the crop that a paper defines."""
    crops: set[Any] = set()
    for method in published("methods"):
        input: Input = resolve(PARAMS, dataset, method).input
        uncropped = input.crop_scale == (1.0, 1.0)
        fit = None if uncropped else input.fit
        crops.add((input.size, input.resize, input.crop_scale, input.crop_ratio, input.flip, fit))
    assert len(crops) == 1
