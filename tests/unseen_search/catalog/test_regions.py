"""Which regions of two pictures cause their similarity."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.photos import picture, save_model
from unseen.frozen.embedder import Embedder
from unseen.frozen.network import Network, add_linear, write_network
from unseen.networks.published_network import timm
from unseen.runtime.errors import UserError
from unseen_search.catalog.regions import Explainer

TWO_MAPS = {"name": "test_resnet", "pretrained": False, "stages": [-2, -1]}
FIRST, SECOND = picture(1, "PNG"), picture(2, "PNG")


def network(directory: Path, name: str, linear: bool = False, **arguments: Any) -> Embedder:
    torch.manual_seed(0)
    module = timm.create_model(name, num_classes=0, **arguments)
    with torch.no_grad():  # random biases and scales, so that no layer is the identity by its initial values
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    save_file(module.state_dict(), directory.with_suffix(".safetensors"))
    write_network(Network(name, directory.with_suffix(".safetensors"), 96, arguments=arguments), directory)
    if linear:
        add_linear(directory, torch.randn(module.num_features, module.num_features), {})
    return Embedder(directory)


@pytest.mark.slow
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("name", ["test_resnet.r160_in1k", "test_convnext.r160_in1k"])
def test_contributions_of_averaging_networks_sum_to_the_similarity(
    name: str, linear: bool, tmp_path: Path
) -> None:
    embedder = network(tmp_path / "network", name, linear)
    vectors = embedder([FIRST, SECOND])
    explanation = Explainer(embedder).explain(FIRST, SECOND)
    assert explanation.kind == "contribution"
    assert explanation.similarity == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    for regions in (explanation.first, explanation.second):
        assert regions.map.size > 1
        assert regions.map.std() > 0
        assert regions.map.sum() == pytest.approx(explanation.similarity, abs=1e-4)
    assert np.array_equal(embedder([FIRST, SECOND]), vectors), "the hooks leave the model as it is"


def test_contributions_of_a_trained_model_equal_their_definition(tmp_path: Path) -> None:
    embedder = Embedder(save_model(tmp_path / "model", 1, input={"size": 96}))
    explainer = Explainer(embedder)
    explanation = explainer.explain(FIRST, SECOND)
    method = embedder.method
    images = torch.cat([explainer._load(picture)[0] for picture in (FIRST, SECOND)])
    with torch.no_grad():
        features = method.backbone(images).maps[-1].double()
        linear = method.head.projection.linear.double()
        at_positions = torch.einsum("dl,blhw->bdhw", linear.weight, features)
        at_positions += linear.bias[None, :, None, None]
    pooled = at_positions.mean((2, 3))
    lengths = pooled.norm(dim=1, keepdim=True)
    other = (pooled / lengths).flip(0)
    expected = torch.einsum("bdhw,bd->bhw", at_positions, other) / lengths[:, :, None]
    expected /= features[0, 0].numel()
    assert explanation.kind == "contribution"
    np.testing.assert_allclose(explanation.first.map, expected[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(explanation.second.map, expected[1].numpy(), atol=1e-5)


def test_a_class_token_has_the_attention_of_the_last_block(tmp_path: Path) -> None:
    embedder = network(tmp_path / "network", "test_vit.r160_in1k")
    explainer = Explainer(embedder)
    explanation = explainer.explain(FIRST, SECOND)
    assert explanation.kind == "attention"
    attention = embedder.method.network.blocks[-1].attn
    attention.fused_attn = False
    weights: list[torch.Tensor] = []
    attention.attn_drop.register_forward_pre_hook(lambda _, arguments: weights.append(arguments[0]))
    with torch.no_grad():
        embedder.method.network(explainer._load(FIRST)[0])
    shares = weights[0][0, :, 0, 1:].mean(0)
    expected = (shares / shares.sum()).reshape(explanation.first.map.shape).numpy()
    np.testing.assert_allclose(explanation.first.map, expected, atol=1e-6)


@pytest.mark.parametrize(
    "changes", [{"pooling": {"name": "gem"}}, {"method": "multihead", "backbone": TWO_MAPS}]
)
def test_a_pooling_that_is_no_average_has_no_regions(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = save_model(tmp_path / "model", 1, input={"size": 96}, **changes)
    explanation = Explainer(Embedder(model)).explain(FIRST, SECOND)
    assert explanation.kind is None
    assert explanation.first is explanation.second is None


def test_a_transformer_with_another_attention_has_no_regions(tmp_path: Path) -> None:
    embedder = network(tmp_path / "network", "test_vit.r160_in1k", attn_layer="diff")
    assert Explainer(embedder).explain(FIRST, SECOND).kind is None


def test_positions_of_a_map_with_the_channels_last(tmp_path: Path) -> None:
    small = {"embed_dim": 8, "depths": [1] * 4, "num_heads": [1] * 4}
    embedder = network(tmp_path / "network", "swin_tiny_patch4_window7_224.ms_in1k", img_size=96, **small)
    explanation = Explainer(embedder).explain(FIRST, SECOND)
    assert explanation.kind == "contribution"
    assert explanation.first.map.shape == (3, 3)
    assert explanation.first.map.sum() == pytest.approx(explanation.similarity, abs=1e-4)


def test_refuses_a_damaged_picture(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (40, 40)).save(stream, "JPEG")
    explainer = Explainer(Embedder(save_model(tmp_path / "model", 1)))
    with pytest.raises(UserError, match="cannot be read as a picture"):
        explainer.explain(FIRST, stream.getvalue()[:-20])
