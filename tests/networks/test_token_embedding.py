"""The table of the token corpus: its lookups, its bound, and the path of a bag from the shard to the map."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.device import pretended
from tests.params import resolve
from unseen.config.document import Params
from unseen.data.decode import decode
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, TokensSource
from unseen.data.shards import Shards
from unseen.data.transforms import crop_for_testing, crop_for_training
from unseen.methods.build import initial_method
from unseen.networks.backbone import Backbone
from unseen.networks.token_embedding import BOUND

PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")


def bags(tokens: torch.Tensor) -> torch.Tensor:
    """(B, n) numbers -> the image of each bag in the form of the loader."""
    return (tokens / 255).float()[:, None, None].expand(-1, 3, tokens.shape[1], -1)


def test_a_map_has_the_rows_of_the_table_in_the_order_of_the_bag() -> None:
    network = Backbone("token_embedding", arguments={"tokens": 256, "dim": 3})
    tokens = torch.stack([torch.arange(256), torch.arange(256).flip(0)])
    features = network(bags(tokens))
    assert [map.shape for map in features.maps] == [(2, 3, 1, 256)]
    table = network.network.state_dict()["table.weight"]
    for row in range(2):
        for place in range(256):
            assert torch.equal(features.maps[0][row, :, 0, place], table[tokens[row, place]])
    assert (network.channels, network.cls_channels, network.mean, network.std) == (
        (3,),
        None,
        (0.0, 0.0, 0.0),
        (1.0, 1.0, 1.0),
    )


def test_a_weight_at_the_bound_has_a_gradient() -> None:
    """A clamp in the forward pass would set its gradient to zero."""
    network = Backbone("token_embedding", arguments={"tokens": 4, "dim": 2})
    weight = network.network.get_parameter("table.weight")
    with torch.no_grad():
        weight.copy_(torch.tensor([[5.0, -5.0], [0.1, -0.2], [BOUND, -BOUND], [0.0, 0.0]]))
    map = network(bags(torch.tensor([[0, 1, 2]]))).maps[0]
    torch.testing.assert_close(map[0, :, 0], torch.tensor([[BOUND, 0.1, BOUND], [-BOUND, -0.2, -BOUND]]))
    map.sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]))


def test_starts_within_glorots_interval() -> None:
    torch.manual_seed(0)
    weight = Backbone("token_embedding", arguments={"tokens": 68, "dim": 2}).network.get_parameter(
        "table.weight"
    )
    limit = (6 / (68 + 2)) ** 0.5
    assert float(weight.detach().abs().max()) <= limit
    assert float(weight.detach().std()) == pytest.approx(limit / 3**0.5, rel=0.15)


def test_refuses_a_picture() -> None:
    with pytest.raises(ValueError, match=r"a pixel has value 200, but the table has 68 tokens"):
        Backbone("token_embedding")(torch.full((1, 3, 4, 4), 200 / 255))


def _no_token_on_a_gpu() -> None:
    network = Backbone("token_embedding")
    images = bags(torch.tensor([[0, 67, 3], [1, 68, 67]]))
    expected = network(images[:1]).maps[0]
    network, images = network.to(pretended.GPU), images.to(pretended.GPU)
    with pretended.recorded() as record:
        map = network(images).maps[0]
    assert record.waits == []
    assert torch.equal(map[:1].cpu(), expected)
    assert map[1, 0, 0].isnan().tolist() == [False, True, False]
    map[:1].sum().backward()
    assert network.network.get_parameter("table.weight").grad is not None


def test_on_a_gpu_a_pixel_that_is_no_token_is_nan_without_a_wait() -> None:
    pretended.run(_no_token_on_a_gpu)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gsp", "irt_l"])  # they resize with different filters
def test_the_recipe_keeps_every_token_between_shard_and_map(tmp_path: Path, method: str) -> None:
    ingest(TokensSource(train_per_class=2, test_per_class=2), IngestSettings(), tmp_path / "out", "tokens", 1)
    shards = Shards(tmp_path / "out")
    recipe = resolve(PARAMS, "tokens", method)
    out = np.empty((3, recipe.input.size, recipe.input.size), np.uint8)
    for row in range(0, 64, 7):
        picture = decode(shards.image(row))
        for key in range(3):
            crop_for_training(picture, key, recipe.input, out)
            assert np.array_equal(out, np.broadcast_to(picture[0, :, 0], out.shape))
        crop_for_testing(picture, recipe.input, out)
        assert np.array_equal(out, np.broadcast_to(picture[0, :, 0], out.shape))


@pytest.mark.parametrize(
    "name", ["gsp", "gsp_contrastive", "gsp_triplet", "gsp_xbm", "gsp_proxy_nca", "gsp_proxy_anchor"]
)
def test_only_prototypes_follow_the_table_and_both_are_bounded(name: str) -> None:
    """As in the released code: no transform and no zero-shot head. After very long steps, table and
    prototypes are within 0.3."""
    recipe = resolve(PARAMS, "tokens", name)
    method = initial_method(recipe, 16, 64, 0).train()
    weights = dict(method.named_parameters())
    assert {part for part in weights if not part.startswith("loss.")} == {
        "backbone.network.table.weight",
        "head.pooling.gsp.prototypes",
    }
    method.get_submodule("head.pooling.gsp").get_buffer("initialized").fill_(True)
    optimizer = torch.optim.SGD(weights.values(), lr=100.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        outputs = method(bags(torch.randint(68, (8, 50), generator=generator)))
        for weight in (weights["backbone.network.table.weight"], weights["head.pooling.gsp.prototypes"]):
            assert float(weight.detach().abs().max()) <= np.float32(BOUND)
        optimizer.zero_grad()
        sum(outputs.embedding.square().sum(0) * torch.tensor([1.0, -1.0])).backward()
        optimizer.step()
    assert float(weights["head.pooling.gsp.prototypes"].detach().abs().max()) > BOUND, (
        "the steps exceed the bound"
    )
