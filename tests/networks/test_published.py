"""Published checkpoints of every backbone of the papers: each tensor is loaded by name and shape, and sizes
and costs equal the published ones."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.oracles import published
from unseen.networks.backbone import Backbone
from unseen.networks.googlenet import torchvision
from unseen.networks.mix_transformer import DEPTHS

pytestmark = pytest.mark.slow

Shapes = dict[str, tuple[int, ...]]


def numbered(shapes: Shapes) -> dict[str, Tensor]:
    """Each tensor has one distinct number, so that no file of hundreds of megabytes is needed."""
    return {
        name: torch.tensor([float(number)]).expand(shape)
        for number, (name, shape) in enumerate(shapes.items(), start=1)
    }


def torchvision_shapes(name: str, **arguments: object) -> Shapes:
    with torch.device("meta"):
        state = torchvision.models.get_model(name, weights=None, **arguments).state_dict()
    # the published files are older
    return {
        key: tuple(value.shape) for key, value in state.items() if not key.endswith("num_batches_tracked")
    }


def assert_every_weight_is_loaded(network: Backbone, state: dict[str, Tensor]) -> None:
    loaded = {
        key: value
        for key, value in network.network.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    assert {key: float(value.flatten()[0]) for key, value in loaded.items()} == {
        key: float(state[key].flatten()[0]) for key in loaded
    }
    assert all(float(value.min()) == float(value.max()) for value in loaded.values())


@pytest.mark.parametrize(
    ("name", "shapes", "wrapped"),
    [
        (
            "resnet50.tv_in1k",
            torchvision_shapes("resnet50"),
            None,
        ),  # resnet50-19c8e357.pth, resnet50-0676ba61.pth
        ("resnet101.tv_in1k", torchvision_shapes("resnet101"), None),
        (
            "googlenet",
            torchvision_shapes("googlenet", aux_logits=True, init_weights=False),
            None,
        ),  # googlenet-1378be20.pth, with aux1 and aux2
        ("deit_small_patch16_224", published.deit(384, distilled=False), "model"),
        ("deit_base_patch16_224", published.deit(768, distilled=False), "model"),
        ("deit_small_distilled_patch16_224", published.deit(384, distilled=True), "model"),
        ("bn_inception", published.bn_inception(), None),
    ],
)
def test_loads_every_weight_of_a_published_file(
    tmp_path: Path, name: str, shapes: Shapes, wrapped: str | None
) -> None:
    state = numbered(shapes)
    torch.save({wrapped: state} if wrapped else state, tmp_path / "weights.pth")
    assert_every_weight_is_loaded(Backbone(name, checkpoint=tmp_path / "weights.pth"), state)


@pytest.mark.parametrize("name", ["googlenet", "bn_inception", "mit_b1"])
def test_refuses_a_published_file_without_a_weight(tmp_path: Path, name: str) -> None:
    shapes = {
        "googlenet": torchvision_shapes("googlenet", init_weights=False),
        "bn_inception": published.bn_inception(),
    }
    state = numbered(shapes.get(name) or published.mit_nvidia(DEPTHS["b1"]))
    removed = next(
        key
        for key in state
        if "inception_4a_1x1.w" in key or "inception4a.branch1.conv" in key or "block2.0.attn.q.w" in key
    )
    del state[removed]
    torch.save(state | {"mistaken": torch.zeros(1)}, tmp_path / "weights.pth")
    with pytest.raises(
        ValueError, match=rf"does not fit {name}: 1 missing \(.+\), 1 unexpected \(mistaken\)"
    ):
        Backbone(name, checkpoint=tmp_path / "weights.pth")


@pytest.mark.parametrize("size", ["b1", "b2"])
def test_loads_both_published_namings_of_the_mix_transformer(tmp_path: Path, size: str) -> None:
    nvidia = numbered(published.mit_nvidia(DEPTHS[size]))
    for key in [key for key in nvidia if ".kv." in key]:  # keys above values, with different numbers
        nvidia[key] = torch.cat(
            [nvidia[key][: len(nvidia[key]) // 2], nvidia[key][len(nvidia[key]) // 2 :] + 0.5]
        )
    hugging_face = {
        name: nvidia[source][rows].contiguous()
        for name, (source, rows) in published.mit_hugging_face(DEPTHS[size]).items()
    }
    states = []
    for state in (nvidia, hugging_face):
        torch.save(state, tmp_path / "weights.pth")
        states.append(Backbone(f"mit_{size}", checkpoint=tmp_path / "weights.pth").network.state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    # every tensor came from another place
    assert len({float(value.flatten()[0]) for value in states[0].values()}) == len(states[0])
    query, key, value = (states[0][f"stages.1.blocks.0.attention.{part}_proj.weight"] for part in "qkv")
    assert torch.equal(query, nvidia["block2.0.attn.q.weight"])
    assert torch.equal(key, nvidia["block2.0.attn.kv.weight"][:128])
    assert torch.equal(value, nvidia["block2.0.attn.kv.weight"][128:])


# Parameters with the classifier, and 10^9 multiply-accumulates of one 224 x 224 image, as published.
PUBLISHED = [
    # torchvision: `num_params` and `_ops` of ResNet50_Weights, ResNet101_Weights and GoogLeNet_Weights
    ("resnet50.tv_in1k", 2048 * 1000 + 1000, 25.557032, 4.089),
    ("resnet101.tv_in1k", 2048 * 1000 + 1000, 44.549160, 7.801),
    ("googlenet", 1024 * 1000 + 1000, 6.624904, 1.498),
    # model cards of timm/deit_*.fb_in1k; the README of facebookresearch/deit has 22M, 22M, 86M and 87M
    ("deit_small_patch16_224", 384 * 1000 + 1000, 22.1, 4.6),
    ("deit_small_distilled_patch16_224", 2 * (384 * 1000 + 1000), 22.4, 4.6),
    ("deit_base_patch16_224", 768 * 1000 + 1000, 86.6, 17.6),
    ("deit_base_distilled_patch16_224", 2 * (768 * 1000 + 1000), 87.3, 17.7),
    # no table has plain BN-Inception: parameters are those of the published file, 2.0 is 4.091 / 2 GFLOPs of
    # Open Model Zoo's se-inception (BN-Inception with squeeze-and-excitation), rounded
    ("bn_inception", 1024 * 1000 + 1000, 11.295240, 2.0),
    # SegFormer table 1a has 13.1 (of 13.15, truncated) and 24.2 for the encoders; with the ImageNet
    # classifier the published files have 13.7 and 24.7
    ("mit_b1", 512 * 1000 + 1000, 13.7, None),
    ("mit_b2", 512 * 1000 + 1000, 24.7, None),
]


@pytest.mark.parametrize(
    ("name", "classifier", "millions", "giga"), PUBLISHED, ids=[row[0] for row in PUBLISHED]
)
def test_sizes_and_costs_equal_the_published_ones(
    name: str, classifier: int, millions: float, giga: float | None
) -> None:
    network = on_paper(name)
    parameters = sum(parameter.numel() for parameter in network.parameters()) + classifier
    assert round(parameters / 1e6, decimals(millions)) == millions
    if giga is not None:
        assert round((macs(network, 224) + classifier) / 1e9, decimals(giga)) == giga


@pytest.mark.parametrize(("name", "width", "giga"), [("mit_b1", 256, 15.9), ("mit_b2", 768, 62.4)])
def test_cost_of_a_mix_transformer_in_its_segmenter(name: str, width: int, giga: float) -> None:
    """SegFormer table 1a, 512 x 512 px, ADE20K: encoder and decoder. The decoder has four projections, their
    fusion and 150 classes."""
    positions = [128 * 128, 64 * 64, 32 * 32, 16 * 16]
    decoder = sum(
        count * channels * width for count, channels in zip(positions, (64, 128, 320, 512), strict=True)
    )
    decoder += positions[0] * (4 * width * width + 150 * width)
    assert (macs(on_paper(name), 512) + decoder) / 1e9 == pytest.approx(giga, abs=0.07)


def on_paper(name: str) -> Backbone:
    with torch.device("meta"):
        return Backbone(name).eval()


def macs(network: Backbone, size: int) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 3, size, size, device="meta"))
    return counter.get_total_flops() // 2


def decimals(value: float) -> int:
    return len(str(value).split(".")[1])
