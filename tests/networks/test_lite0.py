"""The weights of the package become those of timm's EfficientNet-Lite0."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.packages import require
from unseen.frozen.embedder import Embedder
from unseen.frozen.network import Network
from unseen.networks import lite0
from unseen.networks.published_network import timm


def test_every_tensor_is_one_of_timm_in_the_same_order() -> None:
    path = require("lite0", lite0.installed())
    state = lite0.read(path)
    network = timm.create_model(lite0.NETWORK, pretrained=False)
    expected = network.state_dict()
    original = torch.load(path, map_location="cpu", weights_only=True)
    assert list(state) == list(expected)
    assert [value.shape for value in state.values()] == [value.shape for value in expected.values()]
    assert all(torch.equal(value, state[lite0.renamed(name)]) for name, value in original.items())
    network.load_state_dict(state)


@pytest.mark.slow
def test_the_default_network_embeds_as_timm_with_the_weights_of_the_package(tmp_path: Path) -> None:
    path = require("lite0", lite0.installed())
    network = timm.create_model(lite0.NETWORK, pretrained=False)
    network.load_state_dict(lite0.read(path))
    network.reset_classifier(0)
    corners = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
    picture = Image.fromarray(corners).resize((256, 300), Image.Resampling.BICUBIC)
    picture.save(tmp_path / "picture.png")
    config = timm.data.resolve_model_data_config(network)
    with torch.inference_mode():
        expected = network.eval()(timm.data.create_transform(**config)(picture)[None])[0]
    vector = torch.from_numpy(Embedder(Network(lite0.NETWORK))([tmp_path / "picture.png"])[0])
    assert torch.cosine_similarity(vector, expected, dim=0) > 0.99999


def test_refuses_another_file(tmp_path: Path) -> None:
    torch.save({"_fc.bias": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="its sha256 is not"):
        lite0.read(tmp_path / "other.pth")


def test_finds_no_file_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite0, "PACKAGE", "no_such_package")
    assert lite0.installed() is None
