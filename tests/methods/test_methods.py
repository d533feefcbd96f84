"""Properties of every method: unit vectors, independent images in evaluation, parameter groups without
repetition, a decreasing loss. test_every_part.py tests every loss and pooling of a method."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.methods.small import CLASSES, METHODS, SAMPLES, SIDE, batch, places, recipe
from unseen.methods.artifact import saved_state
from unseen.methods.build import build_method, initial_method
from unseen.methods.method import unit
from unseen.networks.attention import SecondOrderAttention
from unseen.runtime.errors import UserError

TRANSPORT = {"prototypes": 4, "initialization_memory": 24}
POOLINGS: dict[str, dict[str, Any]] = {
    "gem": {},
    **dict.fromkeys(("gsp", "max_gsp", "gem_gsp"), TRANSPORT),
}
LOSSES = ("contrastive", "proxy_anchor", "partial_fc", "snca", "hybrid")
VIT = {"name": "test_vit", "arguments": {"img_size": SIDE, "patch_size": 8}}
WIDE = {"name": "test_resnet", "arguments": {"output_stride": 8}}  # maps of 4 x 4
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{method: (method, {}) for method in METHODS},
    **{
        f"baseline, {name}": ("baseline", {"pooling": {"name": name, **arguments}, "backbone": WIDE})
        for name, arguments in POOLINGS.items()
    },
    **{
        f"baseline, {name}, transformer": (
            "baseline",
            {"pooling": {"name": name, **POOLINGS[name]}, "backbone": VIT},
        )
        for name in ("gem", "gsp")
    },
    **{f"baseline, {name}": ("baseline", {"loss": {"name": name}}) for name in LOSSES},
    **{
        f"gsp, {name}": ("gsp", {"pooling": {"name": name, **POOLINGS[name]}})
        for name in ("max_gsp", "gem_gsp")
    },
    "gsp, attribute_average": ("gsp", {"pooling": {"name": "attribute_average", "prototypes": 4}}),
    **{f"gsp, {name}": ("gsp", {"loss": {"name": name}}) for name in ("proxy_nca", "proxy_anchor")},
    "baseline, momentum encoder": (
        "baseline",
        {"loss": {"name": "contrastive"}, "memory": {"size": 24, "momentum": 0.9}},
    ),
    "baseline, layer norm alone": ("baseline", {"dim": None, "projection": {"layer_norm": True}}),
    "crt, average": ("crt", {"transform": "average"}),
    "crt, shared": ("crt", {"branches": "shared", "networks": "shared", "auxiliary": {"prototypes": 4}}),
    **{f"multihead, {name}": ("multihead", {"heads": name}) for name in ("local", "global")},
    "multihead, single": (
        "multihead",
        {"heads": "single", "backbone": {"arguments": {}}},
    ),  # maps of 2 x 2 and 1 x 1
    "multihead, one loss": ("multihead", {"loss": {"name": "multi_similarity"}}),
    "baseline, average_max, contrastive, memory": (
        "baseline",
        {"pooling": {"name": "average_max"}, "loss": {"name": "contrastive"}, "memory": {"size": 24}},
    ),
    "baseline, no projection": ("baseline", {"dim": None}),
    "gsp, no zero-shot, memory": ("gsp", {"zero_shot": None, "memory": {"size": 24}}),
    "multihead, no attention": ("multihead", {"attention": False}),
    "irt, average pooling, projection": ("irt", {"pooling": {"name": "average"}, "dim": 8, "memory": None}),
    "crt, vision transformer": (
        "crt",
        {"backbone": {"name": "test_vit", "arguments": {"img_size": SIDE, "patch_size": 8}}},
    ),
    "frozen norm": ("baseline", {"backbone": {"batch_norm": "frozen"}}),
}


def built(variant: str, seed: int = 0) -> Any:
    method, blocks = VARIANTS[variant]
    return initial_method(recipe(method, **blocks), CLASSES, SAMPLES, seed)


@pytest.mark.parametrize("variant", VARIANTS)
def test_embeddings_are_unit_vectors_and_do_not_depend_on_the_rest_of_the_batch(variant: str) -> None:
    method = built(variant)
    images, labels = batch()
    for _ in range(2):  # changes running statistics and memories
        outputs = method.train()(images)
        method.objective(outputs, labels, places(labels))
    values = [getattr(outputs, field.name) for field in fields(outputs)]
    assert {len(value) for value in values if value is not None} == {12}, "one row per image"
    method.eval()
    with torch.no_grad():
        together = method.embed(images)
        separate = torch.cat([method.embed(images[i : i + 1]) for i in (5, 0)])
    assert together.shape == (12, method.dim)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(12))
    torch.testing.assert_close(separate, together[[5, 0]], rtol=1e-4, atol=1e-5)
    assert torch.equal(method.embed(images).detach(), together)


def test_embed_refuses_training_mode() -> None:
    images, _ = batch()
    with pytest.raises(RuntimeError, match=r"eval\(\)"):
        built("baseline").train().embed(images)


@pytest.mark.parametrize("variant", VARIANTS)
def test_groups_contain_every_parameter_once_and_each_has_a_finite_gradient(variant: str) -> None:
    method = built(variant).train()
    groups = method.parameter_groups()
    assert set(groups) <= {"backbone", "head", "proxies"}
    grouped = [id(parameter) for parameters in groups.values() for parameter in parameters]
    assert sorted(grouped) == sorted(
        id(parameter) for parameter in method.parameters() if parameter.requires_grad
    )
    assert all(groups.values())
    assert [id(p) for p in groups["backbone"]] == [id(p) for p in method.backbone.parameters()]
    images, labels = batch()
    for _ in range(3):  # GSP passes gradients once its prototypes are chosen, attention once it is not zero
        method.zero_grad()
        sum(method.objective(method(images), labels, places(labels)).values()).backward()
        with torch.no_grad():
            for parameter in method.parameters():
                if parameter.grad is not None:
                    parameter -= 1e-3 * parameter.grad
    learning = {name: parameter for name, parameter in method.named_parameters() if parameter.requires_grad}
    assert [name for name, parameter in learning.items() if parameter.grad is None] == []
    assert all(bool(parameter.grad.isfinite().all()) for parameter in learning.values())


def test_proxies_are_a_separate_group_and_prototypes_are_not() -> None:
    assert [tuple(p.shape) for p in built("multihead").parameter_groups()["proxies"]] == [(CLASSES, 16)]
    for variant in ("baseline", "crt", "gsp", "irt"):
        assert "proxies" not in built(variant).parameter_groups()


@pytest.mark.slow
@pytest.mark.parametrize("variant", [name for name in VARIANTS if "pooling" not in VARIANTS[name][1]])
def test_ten_steps_on_one_batch_lower_the_loss(variant: str) -> None:
    method = built(variant).train()
    images, labels = batch()
    optimizer = torch.optim.AdamW(
        [parameter for group in method.parameter_groups().values() for parameter in group], lr=2e-3
    )
    losses = []
    for _ in range(10):
        terms = method.objective(method(images), labels, places(labels))
        # the memory grows, so that its loss changes at each step
        loss = sum(term for name, term in terms.items() if name != "memory")
        optimizer.zero_grad()
        sum(terms.values()).backward()
        torch.nn.utils.clip_grad_norm_(method.parameters(), 10.0)
        optimizer.step()
        method.after_step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * max(losses[:2]), losses  # the first loss of SNCA is 0: its memory is empty


def test_crt_runs_its_second_branch_in_training_only() -> None:
    method = built("crt")
    images, _ = batch()
    assert method.train()(images).auxiliary.shape == (12, 12)
    assert method.eval()(images).auxiliary is None


def test_gsp_pools_the_average_until_its_prototypes_are_chosen() -> None:
    method = built("gsp").train()
    images, labels = batch()
    outputs = method(images)
    torch.testing.assert_close(outputs.embedding, unit(outputs.average))
    prototypes = method.head.pooling.gsp.prototypes
    for _ in range(2):  # 24 places
        outputs = method(images)
        method.objective(outputs, labels, places(labels))
    assert method.head.pooling.gsp.prototypes is prototypes
    assert not torch.allclose(method(images).embedding, unit(outputs.average), atol=1e-4)


def test_attention_of_multihead_starts_as_the_identity() -> None:
    torch.manual_seed(0)
    method = built("multihead").eval()
    images, _ = batch()
    embeddings_before = method.embed(images)
    for module in list(method.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, SecondOrderAttention):
                setattr(module, name, torch.nn.Identity())
    assert torch.equal(method.embed(images), embeddings_before)


def test_irt_uses_the_class_token() -> None:
    method = built("irt").eval()
    images, _ = batch()
    tokens = method.backbone.network.forward_features(images)
    torch.testing.assert_close(method.embed(images), unit(tokens[:, 0]))


@pytest.mark.slow
def test_equal_seeds_give_equal_weights_and_keep_the_generator() -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    for variant in METHODS:
        first, repeated, other_seed = (
            built(variant, 3).state_dict(),
            built(variant, 3).state_dict(),
            built(variant, 4).state_dict(),
        )
        assert all(torch.equal(first[name], repeated[name]) for name in first)
        assert any(not torch.equal(first[name], other_seed[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("method", "blocks", "message"),
    [
        ("baseline", {"backbone": {"name": "resnet5"}}, "timm has no network 'resnet5'"),
        ("baseline", {"backbone": {"stages": [9]}}, "has 5 feature maps"),
        ("baseline", {"backbone": {"checkpoint": "nowhere.pth"}}, "nowhere.pth of test_resnet is missing"),
        ("baseline", {"pooling": {"name": "cls"}}, "this network has none"),
        ("irt", {"backbone": {"name": "test_resnet", "arguments": {}}}, "this network has none"),
        (
            "baseline",
            {"pooling": {"name": "max_gsp"}, "dim": None},
            "pooling `max_gsp` contains the transform to the embedding: set `dim`",
        ),
        (
            "crt",
            {"backbone": {"name": "test_vit3", "arguments": {"img_size": 64, "patch_size": 8}}},
            "takes images of 64 x 64, input.size is 32",
        ),
        ("multihead", {"attention_reduction": [4, 500]}, "500 exceeds the 96 channels"),
    ],
)
def test_refuses_parts_that_do_not_fit(method: str, blocks: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        build_method(recipe(method, **blocks), CLASSES, SAMPLES)
    assert message in str(caught.value)
    assert f"Method {method}: " in str(caught.value)


@pytest.mark.parametrize(
    ("method", "blocks", "message"),
    [
        ("baseline", {"batch": {"images_per_class": 1}}, "a pair loss needs two images of a class"),
        (
            "gsp",
            {"loss": {"name": "proxy_nca"}, "memory": {"size": 24}},
            "a memory needs a pair loss, got loss proxy_nca",
        ),
        ("crt", {"branches": "shared"}, "branches: shared needs the same prototypes and hidden"),
        ("multihead", {"dim": 15}, "dim must be even"),
        ("multihead", {"backbone": {"stages": [-1]}}, r"must contain two indices, got \(-1,\)"),
        ("baseline", {"input": {"crop_scale": [0.5, 0.2]}}, r"two ascending shares .*, got \(0\.5, 0\.2\)"),
        (
            "baseline",
            {
                "loss": {"name": "tuple_contrastive", "negatives": 2},
                "batch": {"sampling": "tuples", "images_per_class": 4},
                "training": {"protocol": "refit"},
            },
            "set training.protocol to selected or published, got refit",
        ),
        ("gsp", {"pooling": {"name": "average"}}, "average"),
    ],
)
def test_refuses_invalid_recipes(method: str, blocks: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        recipe(method, **blocks)


def test_the_momentum_encoder_follows_the_network() -> None:
    method = built("baseline, momentum encoder").train()
    images, labels = batch()
    slow, fast = method.momentum.backbone.network.conv1[0].weight, method.backbone.network.conv1[0].weight
    assert torch.equal(slow, fast)
    slow_before = slow.clone()
    with torch.no_grad():
        fast += 1.0
    method.after_step()
    torch.testing.assert_close(slow, slow_before + 0.1)
    buffer = next(method.backbone.buffers())
    buffer += 3
    method.after_step()
    assert torch.equal(next(method.momentum.backbone.buffers()), buffer)

    outputs = method(images)
    assert not outputs.key.requires_grad
    expected = method.momentum.head(method.momentum.backbone(images)).vector
    torch.testing.assert_close(outputs.key, unit(expected))
    method.objective(outputs, labels, places(labels))
    assert torch.equal(method.loss.memory.embeddings[:12], outputs.key), "the memory contains the keys"
    assert not any(name.startswith("momentum") for name in saved_state(method)), "a saved model omits it"
    assert method.eval()(images).key is None
