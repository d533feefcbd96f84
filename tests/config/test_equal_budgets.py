"""Equal conditions for all methods on the sets whose recipes are ours, and the controls of the methods."""

from pathlib import Path
from typing import Any

import pytest

from tests.params import resolve
from unseen.config.document import Params
from unseen.config.layers import flat
from unseen.config.place import at
from unseen.config.recipe_files import published

PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")
OURS = ("parts", "omniglot", "cifar10", "cifar100", "collage", "tokens", "folder")
EQUAL = [
    "batch",
    *(f"input.{name}" for name in ("size", "resize", "fit", "crop_scale", "crop_ratio", "flip")),
    *(
        f"optimizer.{name}"
        for name in (
            "name", "learning_rate", "weight_decay", "epsilon", "decay_vectors", "betas", "new_layers_only",
            "layer_decay", "clip_norm", "clip_value",
        )
    ),
    *(f"schedule.{name}" for name in ("name", "warmup")),
    *(
        f"training.{name}"
        for name in (
            "protocol", "iterations", "validate_every", "patience", "minimum_gain", "validation_share",
            "selection_metric",
        )
    ),
]  # fmt: skip


def recipe(dataset: str, method: str) -> dict[str, Any]:
    return resolve(PARAMS, dataset, method).model_dump(mode="json")


@pytest.mark.parametrize("dataset", OURS)
def test_methods_have_equal_batches_optimizers_and_budgets(dataset: str) -> None:
    recipes = {method: recipe(dataset, method) for method in published("methods") if method != "irt_o"}
    for field in EQUAL:
        values = {str(at(each, field)) for each in recipes.values()}
        assert len(values) == 1, f"{field}: {values}"


@pytest.mark.parametrize("dataset", OURS)
def test_only_the_small_transformer_has_a_precision_of_its_own(dataset: str) -> None:
    """CPUs compute it faster in float32. The other networks have the precision of the processor."""
    for method in published("methods"):
        each = recipe(dataset, method)
        expected = "float32" if each["backbone"]["name"] == "test_vit" else "auto"
        assert each["training"]["precision"] == expected, method


@pytest.mark.parametrize("dataset", [name for name in OURS if name != "tokens"])
def test_methods_have_equal_dimensions(dataset: str) -> None:
    """IRT has no projection; its networks on these sets have about the same width (test_vit 64)."""
    recipes = [recipe(dataset, method) for method in published("methods") if not method.startswith("irt")]
    dims = {each["embedding"]["dim"] if each["method"] == "crt" else each["dim"] for each in recipes}
    assert len(dims) == 1


@pytest.mark.parametrize("dataset", published("datasets"))
@pytest.mark.parametrize(
    ("control", "method", "fields"),
    [
        ("gsp_average", "gsp", {"pooling.transport_ratio", "zero_shot"}),
        ("crt_average", "crt", {"transform"}),
        ("irt_l", "irt_r", {"koleo_weight"}),
    ],
)
def test_a_control_differs_only_in_what_it_controls(
    dataset: str, control: str, method: str, fields: set[str]
) -> None:
    first, second = flat(recipe(dataset, control)), flat(recipe(dataset, method))
    differing = {name for name in {*first, *second} if first.get(name) != second.get(name)}
    blocks = {next((field for field in fields if name.startswith(field)), name) for name in differing}
    assert blocks == (fields - {"zero_shot"} if dataset == "tokens" else fields)


def test_the_control_of_gsp_is_the_average_without_the_zero_shot_loss() -> None:
    for dataset in published("datasets"):
        control = recipe(dataset, "gsp_average")
        assert control["pooling"]["transport_ratio"] == 1
        assert control["zero_shot"] is None
        assert recipe(dataset, "crt_average")["transform"] == "average"


def test_a_user_overrides_a_published_variant_in_its_own_block(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("methods: {gsp: {dim: 32}, gsp_average: {batch: {classes: 5}}}\n")
    assert resolve(Params(path), "parts", "gsp_average").batch.classes == 5
    assert resolve(Params(path), "parts", "gsp_average").dim == 32
    assert resolve(Params(path), "parts", "gsp").batch.classes == 12


@pytest.mark.parametrize("method", published("methods"))
def test_every_method_of_a_small_set_accepts_the_protocols(method: str) -> None:
    """GSP figure 5 needs protocol published on CIFAR-10."""
    for protocol in ("published", "refit"):
        changed = resolve(PARAMS, "cifar10", method, {"training.protocol": protocol})
        assert changed.training.protocol == protocol
