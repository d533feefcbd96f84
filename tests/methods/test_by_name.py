"""Losses and poolings by name have the published defaults of the recipes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

import unseen
from tools.docs.library import members
from unseen.losses import settings as losses
from unseen.losses.multi_similarity import MultiSimilarity
from unseen.methods.by_name import ATTRIBUTE_POOLINGS, LOSSES, MAP_POOLINGS, head, loss, pooling
from unseen.poolings import settings as poolings
from unseen.runtime.errors import UserError

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/library.md"


def vectors() -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randn(12, 16, generator=torch.Generator().manual_seed(0))
    return normalize(rows, dim=1), torch.arange(12) // 3


def test_a_loss_without_settings_is_that_of_the_released_code() -> None:
    """The constants of Wang et al. 2019."""
    built = unseen.loss("multi_similarity")
    expected = MultiSimilarity(alpha=2.0, beta=40.0, threshold=0.5, mining_margin=0.1)
    assert built(*vectors()) == expected(*vectors()) > 0
    changed = unseen.loss("multi_similarity", beta=50, mining_margin=None)
    assert changed(*vectors()) == MultiSimilarity(2.0, 50.0, 0.5, None)(*vectors())


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_by_its_name_has_the_published_constants(name: str) -> None:
    built = loss(name, classes=4, dim=16, samples=12, attributes=5)
    defaults = LOSSES[name]().model_dump(exclude={"name"})
    numbers = {field: value for field, value in defaults.items() if field in vars(built)}
    assert {field: vars(built)[field] for field in numbers} == numbers


def test_a_hybrid_loss_is_the_weighted_sum_of_its_parts() -> None:
    torch.manual_seed(0)
    built = loss("hybrid", classes=4, dim=16, pair={"name": "triplet"}, proxy={"name": "cosface"})
    pair, proxy = built.loss.pair(*vectors()), built.loss.proxy(*vectors())
    torch.testing.assert_close(built(*vectors()), pair + 0.03 * proxy)
    assert [tuple(each.shape) for each in built.parameters()] == [(4, 16)]


def test_a_memory_adds_earlier_batches_to_the_references() -> None:
    built, contrastive = loss("memory", dim=16, size=24), loss("contrastive")
    first, (rows, labels) = vectors(), vectors()
    rows = rows.roll(1, 1)
    torch.testing.assert_close(built(*first), 2 * contrastive(*first))
    in_memory = torch.cat([first[0], rows]), torch.cat([first[1], labels])
    expected = contrastive(rows, labels) + contrastive(rows, labels, *in_memory, torch.arange(12) + 12)
    torch.testing.assert_close(built(rows, labels), expected)


def test_heads_of_crt_and_multihead() -> None:
    maps = torch.rand(2, 8, 5, 5)
    branches = head("crt", channels=8, auxiliary={"prototypes": 3, "dim": 7, "loss_weight": 0.1})
    assert [tuple(vector.shape) for vector in branches(maps)] == [(2, 128), (2, 7)]
    assert len(branches(maps, 1)) == 1
    assert [tuple(each.shape) for each in branches.prototypes] == [(49, 8), (3, 8)]
    both = head("multihead", channels=(8, 4), dim=32).eval()
    assert both([maps, maps[:, :4, :2]]).shape == (2, 32)
    assert list(both) == ["local", "global"]


@pytest.mark.parametrize("name", [*MAP_POOLINGS, *ATTRIBUTE_POOLINGS])
def test_every_pooling_is_built_by_its_name(name: str) -> None:
    built = pooling(name, channels=16, dim=64, positions=25).eval()
    pooled = built(torch.rand(2, 16, 5, 5))
    vector = pooled[0] if name in ATTRIBUTE_POOLINGS else pooled
    assert vector.shape == (2, 64 if name in ATTRIBUTE_POOLINGS else built.out_channels)
    defaults = (MAP_POOLINGS | ATTRIBUTE_POOLINGS)[name]().model_dump(exclude={"name"})
    numbers = {field: value for field, value in defaults.items() if field in vars(built)}
    assert {field: vars(built)[field] for field in numbers} == numbers


def test_the_names_are_those_of_the_recipes() -> None:
    assert set(members(losses.Loss)) | set(losses.TERMS.values()) < set(LOSSES.values())
    assert LOSSES["triplet"] is losses.TripletLoss
    assert MAP_POOLINGS["gem"] is poolings.GemPooling
    assert ATTRIBUTE_POOLINGS["gsp"] is poolings.GspPooling


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: loss("softmax"), r"no loss 'softmax'[\s\S]*multi_similarity, contrastive"),
        (lambda: loss("triplet", margins=1), r"setting margins of loss triplet[\s\S]*margin, mining"),
        (lambda: loss("triplet", margin=-1.0), r"setting margin .* greater than 0, got -1\.0"),
        (
            lambda: loss("proxy_anchor", dim=8),
            r"proxy_anchor needs classes\.[\s\S]*classes=\.\.\., dim=\.\.\.",
        ),
        (lambda: loss("hybrid"), r"hybrid needs classes, dim"),
        (lambda: loss("snca", dim=8), r"snca needs samples"),
        (lambda: loss("memory", dim=8), r"memory needs samples"),
        (lambda: loss("memory", dim=8, size=9, momentum=0.9), r"setting momentum of loss memory is wrong"),
        (lambda: loss("zero_shot", classes=8), r"zero_shot needs attributes"),
        (lambda: loss("zero_shot", weight=0.1), r"setting weight of loss zero_shot is unknown"),
        (lambda: loss("koleo", epsilon=1.0), r"epsilon of loss koleo[\s\S]*Its settings: none"),
        (lambda: head("sphere", 8), r"no head 'sphere'[\s\S]*crt, multihead"),
        (lambda: head("crt", 8, dim=64), r"setting dim of head crt[\s\S]*embedding, auxiliary"),
        (lambda: head("multihead", 8), r"Head multihead with channels 8"),
        (lambda: pooling("mean", 8), r"no pooling 'mean'[\s\S]*average, max"),
        (lambda: pooling("netvlad", 8), r"`netvlad` contains the transform to the embedding: set `dim`"),
        (lambda: pooling("gsop", 8, 8), r"`gsop` depends on the size of the map: set `positions`"),
    ],
)
def test_refuses_what_a_part_lacks(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.slow
def test_the_example_of_the_documentation_runs() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").split("## Without recipes", 1)[1]
    example = text.split("```python\n", 1)[1].split("```", 1)[0]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
