"""Every recipe of params.yaml resolves for every data set, trains four steps at tiny size, is saved and
loaded, and builds its published network."""

from pathlib import Path

import pytest
import torch

from tests.params import resolve
from unseen.config.document import Params
from unseen.config.recipe_files import published
from unseen.data.loader import TrainBatch
from unseen.methods.artifact import load_method, save_recipe, save_weights
from unseen.methods.build import initial_method
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PARAMS = Params(ROOT / "params.yaml")
METHODS = published("methods")
CLASSES, SAMPLES = 6, 48
TINY = {"batch.classes": 4, "batch.images_per_class": 3, "training.precision": "float32"}
TRANSPORT = {"pooling.prototypes": 4, "pooling.initialization_memory": 24}
PAPERS = {
    "crt": "mit_b2",
    "multihead": "resnet50.tv_in1k",
    "gsp": "bn_inception",
    "irt": "deit_small_patch16_224.fb_in1k",
}
PAPERS |= dict.fromkeys(("ms", "contrastive", "triplet", "proxy_anchor", "soft_triple"), "bn_inception")
PAPERS |= {"proxy_nca_original": "bn_inception"}
RESNET = ("proxy_anchor_resnet50", "xbm", "proxy_nca", "nsoftmax", "snca", "margin", "fast_ap")
PAPERS |= dict.fromkeys(RESNET, "resnet50.tv_in1k")


def batch(size: int, count: int, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images whose tint depends on their class; `count` images, spread over four classes as evenly as
    possible."""
    labels = torch.arange(count) * 4 // count
    generator = torch.Generator().manual_seed(step)
    tints = torch.randint(0, 256, (CLASSES, 3, 1, 1), generator=torch.Generator().manual_seed(99))
    noise = torch.randint(-60, 60, (count, 3, size, size), generator=generator)
    return (
        (128 + (tints[labels] - 128) // 16 + noise).clamp(0, 255).to(torch.uint8),
        labels,
        labels * 8 + torch.arange(count) % 8,
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_trained_recipe_is_saved_and_gives_equal_embeddings(method: str, tmp_path: Path) -> None:
    overrides = TINY | (TRANSPORT if method.startswith("gsp") else {})
    if getattr(resolve(PARAMS, "parts", method), "memory", None) is not None:
        overrides |= {"memory.size": 30, "memory.start": 3}
    recipe = resolve(PARAMS, "parts", method, overrides)
    module = initial_method(recipe, CLASSES, SAMPLES, seed=1).train()
    state_before = {name: value.clone() for name, value in module.state_dict().items()}
    learner = Learner(
        module, build_optimizer(recipe.optimizer, module.parameter_groups(), torch.device("cpu")), recipe, 1
    )
    steps = 4 if recipe.training.iterations else 0
    losses = []
    for step in range(steps):
        losses.append(
            train_step(learner, TrainBatch(step, *batch(recipe.input.size, recipe.batch.size, step))).result()
        )
    assert all(torch.isfinite(torch.tensor([step.loss, step.gradient_norm])).all() for step in losses)
    if steps:
        state_after = module.state_dict()
        unchanged = [
            name
            for name in state_before
            if name.startswith("backbone.")
            and name.endswith("weight")
            and torch.equal(state_before[name], state_after[name])
        ]
        assert not unchanged, "every weight of the backbone changes"

    module.eval()
    save_weights(tmp_path / "weights.safetensors", module)
    save_recipe(tmp_path / "recipe.json", recipe, "parts", 1, CLASSES, SAMPLES)
    loaded = load_method(tmp_path)
    assert loaded.recipe == recipe
    images = torch.rand(3, 3, recipe.input.size, recipe.input.size)
    with torch.no_grad():
        embeddings, expected = loaded.method.embed(images), module.embed(images)
    assert torch.equal(embeddings, expected)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))


@pytest.mark.parametrize("dataset", [name for name in published("datasets") if name != "parts"])
def test_every_recipe_resolves_on_every_data_set(dataset: str) -> None:
    for method in METHODS:
        recipe = resolve(PARAMS, dataset, method)
        assert (
            recipe.training.validate_every <= max(recipe.training.iterations, 1)
            or recipe.training.iterations == 0
        ), method
        off_the_shelf = method == "irt_o"
        assert (recipe.training.iterations == 0) is off_the_shelf, method


def test_a_recipe_names_its_published_network() -> None:
    for method in METHODS:
        family = next(name for name in (method, method.split("_")[0]) if name in PAPERS)
        assert resolve(PARAMS, "cub", method).backbone.name == PAPERS[family]


@pytest.mark.parametrize("method", ["crt", "gsp", "irt_r", "ms", "multihead", "nsoftmax"])
def test_a_method_embeds_over_its_published_network(method: str) -> None:
    """test_compatibility.py builds every recipe."""
    recipe = resolve(PARAMS, "cub", method, {"backbone.pretrained": False})
    module = initial_method(recipe, classes=100, samples=5864, seed=0).eval()
    with torch.no_grad():
        embedding = module.embed(torch.rand(1, 3, recipe.input.size, recipe.input.size))
    assert embedding.shape == (1, module.dim)
    assert float(embedding.norm()) == pytest.approx(1, abs=1e-5)
