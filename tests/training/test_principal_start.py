"""The start of heads at the principal directions of what their last layers read."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.jobs import job, recipe, write_tiny_set
from unseen.data.loader import EvalLoader
from unseen.methods.crt import Crt
from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.multihead import Multihead
from unseen.runtime.errors import UserError
from unseen.training.log import Clock
from unseen.training.run import TrainingRun, begin
from unseen.training.step import to_pixels
from unseen.training.worker import Worker


def started(root: Path, method: str, **blocks: Any) -> TrainingRun:
    """A run before its first step, with the principal start."""
    if not (root / "data").exists():
        write_tiny_set(root)
    training = {"protocol": "published", "start": "principal", **blocks.pop("training", {})}
    run = begin(
        job(root, recipe(method, training=training, **blocks)), Worker(0, 1, torch.device("cpu"), 1), Clock()
    )
    run.method.eval()
    return run


@torch.no_grad()
def maps_of(run: TrainingRun) -> tuple[Tensor, ...]:
    """The maps of all training images, without augmentation."""
    loader = EvalLoader(run.shards, run.split.rows, run.recipe.input, 64)
    (images,) = (images for images, _ in loader)
    return run.method.backbone(to_pixels(images, run.method, run.recipe)).maps


def test_a_projection_has_the_directions_of_the_largest_variance(tmp_path: Path) -> None:
    run = started(tmp_path, "baseline", pooling={"name": "average"}, dim=4)
    assert isinstance(run.method, EmbeddingMethod)
    vectors = maps_of(run)[-1].flatten(2).mean(2)
    projected = run.method.head.projection(vectors).detach()
    torch.testing.assert_close(projected.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    variances, _ = torch.linalg.eigh(torch.cov(vectors.T.double()))
    torch.testing.assert_close(
        torch.cov(projected.T).double(), variances.flip(0)[:4].diag(), atol=1e-5, rtol=1e-3
    )


def test_the_transform_of_gsp_keeps_angles(tmp_path: Path) -> None:
    """It has no bias, and as many dimensions as the training images have directions lose nothing."""
    run = started(tmp_path, "gsp", dim=60)
    assert isinstance(run.method, EmbeddingMethod)
    vectors = maps_of(run)[-1].flatten(2).mean(2)
    transform: Any = run.method.head.pooling.transform
    got, expected = (nn.functional.normalize(each) for each in (transform.vectors(vectors), vectors))
    torch.testing.assert_close(got @ got.T, expected @ expected.T, atol=1e-4, rtol=0)


def test_each_branch_of_crt_has_the_first_directions(tmp_path: Path) -> None:
    branch = {"prototypes": 3, "hidden": 5}
    run = started(
        tmp_path,
        "crt",
        branches="shared",
        embedding={**branch, "dim": 4, "loss_weight": 1.0},
        auxiliary={**branch, "dim": 6, "loss_weight": 0.1},
    )
    assert isinstance(run.method, Crt)
    first, second = run.method.branches(maps_of(run)[-1])
    torch.testing.assert_close(first, second[:, :4])
    torch.testing.assert_close(first.mean(0), torch.zeros(4), atol=1e-4, rtol=0)
    variances = second.detach().var(0)
    assert (variances.diff() <= 1e-6).all()
    assert variances[-1] > 0


def test_both_heads_have_one_mean_norm(tmp_path: Path) -> None:
    run = started(tmp_path, "multihead", dim=8)
    assert isinstance(run.method, Multihead)
    local, last = run.method.heads(maps_of(run)).split(4, dim=1)
    assert local.norm(dim=1).mean().item() == pytest.approx(last.norm(dim=1).mean().item(), rel=1e-4)


def test_the_start_depends_on_no_seed_and_changes_the_last_layer_alone(tmp_path: Path) -> None:
    run = started(tmp_path, "baseline", pooling={"name": "average"}, dim=4)
    random = started(tmp_path, "baseline", pooling={"name": "average"}, dim=4, training={"start": "random"})
    changed = {
        name
        for (name, new), old in zip(
            run.method.state_dict().items(), random.method.state_dict().values(), strict=True
        )
        if not torch.equal(new, old)
    }
    assert changed == {"head.projection.linear.weight", "head.projection.linear.bias"}
    assert "start" not in random.recipe.model_dump()["training"]


def test_refuses_a_pooling_with_another_transform(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the transform of this pooling lacks"):
        started(tmp_path, "baseline", pooling={"name": "delf"})
