"""Maps of photos: values, the cache, and errors."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.photos import save_products
from unseen.frozen import maps as module
from unseen.frozen.embedder import Embedder
from unseen.frozen.maps import maps_of, trunk
from unseen.frozen.network import Network
from unseen.networks.published_network import timm
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError


@pytest.fixture
def network(tmp_path: Path) -> Network:
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "w.safetensors")
    return Network("test_resnet.r160_in1k", tmp_path / "w.safetensors", 64)


@pytest.mark.slow
def test_the_average_of_the_maps_is_the_published_embedding(network: Network, tmp_path: Path) -> None:
    photos = sorted(save_products(tmp_path / "photos", 4, 2).rglob("*.png"))
    frozen = trunk(network, tmp_path / "model")
    maps = maps_of(photos, [sha256_of(path) for path in photos], frozen, tmp_path / "maps", "maps")
    shape = maps.layout.maps[0]
    averages = maps.rows(np.arange(len(photos))).numpy().reshape(len(photos), shape[0], -1).mean(2)
    averages /= np.linalg.norm(averages, axis=1, keepdims=True)
    assert abs(averages - Embedder(network)(photos)).max() < 1e-3


def test_a_transformer_has_the_size_of_its_pictures(tmp_path: Path) -> None:
    save_file(timm.create_model("test_vit", num_classes=0).state_dict(), tmp_path / "w.safetensors")
    frozen = trunk(Network("test_vit.r160_in1k", tmp_path / "w.safetensors", 64), tmp_path / "model")
    assert frozen.settings["arguments"] == {"img_size": 64}
    assert frozen.layout.maps == ((64, 4, 4),)


@pytest.mark.slow
def test_computes_each_photo_once_and_continues(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 3)
    photos = sorted(save_products(tmp_path / "photos", 4, 2).rglob("*.png"))
    digests = [sha256_of(path) for path in photos]
    frozen = trunk(network, tmp_path / "model", (-2, -1))
    counts: list[int] = []
    forward = frozen.backbone.forward

    def counted(images: torch.Tensor) -> object:
        counts.append(len(images))
        return forward(images)

    frozen.backbone.forward = counted
    first = maps_of(photos[:5], digests[:5], frozen, tmp_path / "maps", "maps")
    (tmp_path / "maps" / frozen.digest[:16] / "layout.json").write_text("junk")
    both = maps_of(photos[::-1], digests[::-1], frozen, tmp_path / "maps", "maps")
    assert sum(counts) == len(photos)
    assert torch.equal(both.rows(np.arange(3, 8)), first.rows(np.arange(5)[::-1].copy()))
    again = trunk(network, tmp_path / "again", (-2, -1))
    assert again.digest == frozen.digest
    assert trunk(network, tmp_path / "again").digest != frozen.digest
    assert len(maps_of(photos, digests, again, tmp_path / "maps", "maps")) == len(photos)
    assert sum(counts) == len(photos)


@pytest.mark.slow
def test_refuses_values_that_float16_lacks_and_a_network_without_maps(
    network: Network, tmp_path: Path
) -> None:
    photos = sorted(save_products(tmp_path / "photos", 2, 1).rglob("*.png"))
    frozen = trunk(network, tmp_path / "model")
    for name, parameter in frozen.backbone.named_parameters():
        if "bn2.weight" in name:
            parameter.data.fill_(1e9)
    with pytest.raises(UserError, match=r"0\.png have values outside the range of float16"):
        maps_of(photos, [sha256_of(path) for path in photos], frozen, tmp_path / "maps", "maps")
    with pytest.raises(UserError, match="gives no feature maps"):
        trunk(network, tmp_path / "model", (9,))
