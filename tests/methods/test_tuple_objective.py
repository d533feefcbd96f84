"""The loss of a batch of tuples within a method: the order of rows, the terms, and KoLeo over all images."""

import dataclasses

import pytest
import torch
from torch.nn.functional import normalize

from tests.oracles import euclidean_losses as oracle
from tests.oracles import losses as loss_oracle
from unseen.data.settings import Batch
from unseen.losses import settings as config
from unseen.methods.build import initial_method
from unseen.methods.embedding import EmbeddingOutputs
from unseen.methods.metric_loss import MetricLoss
from unseen.methods.settings import BaselineRecipe, IrtRecipe
from unseen.networks.settings import Backbone
from unseen.poolings.settings import GemPooling

TUPLES, NEGATIVES, DIM = 3, 4, 6
BATCH = Batch(classes=TUPLES, images_per_class=2 + NEGATIVES, sampling="tuples")
LOSS = config.TupleContrastiveLoss(margin=1.1, negatives=NEGATIVES)


def rows(seed: int = 0) -> torch.Tensor:
    return normalize(
        torch.randn(BATCH.size, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)),
        dim=1,
    )


def by_hand(z: torch.Tensor) -> torch.Tensor:
    """The k-th tuple consists of 2 + N consecutive rows: query, positive, negatives."""
    total = z.new_zeros(())
    for first in range(0, len(z), 2 + NEGATIVES):
        query, positive, negatives = z[first], z[first + 1], z[first + 2 : first + 2 + NEGATIVES]
        total = total + oracle.tuples(query[None], positive[None], negatives[None], margin=1.1, epsilon=1e-6)
    return total


def test_rows_form_tuples_and_labels_have_no_effect() -> None:
    loss, z = MetricLoss(LOSS, None, DIM, BATCH.size, classes=9, samples=90), rows().requires_grad_()
    labels, samples = torch.arange(BATCH.size) % 9, torch.arange(BATCH.size)
    terms = loss(z, labels, samples)
    assert list(terms) == ["tuple_contrastive"]
    torch.testing.assert_close(terms["tuple_contrastive"], by_hand(z), rtol=1e-12, atol=0)
    assert torch.equal(loss(z, labels.flip(0), samples)["tuple_contrastive"], terms["tuple_contrastive"])
    (gradient,) = torch.autograd.grad(terms["tuple_contrastive"], z)
    (expected_gradient,) = torch.autograd.grad(by_hand(z), z)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-13)
    assert list(loss.proxies()) == []


def test_refuses_incomplete_tuples() -> None:
    with pytest.raises(RuntimeError):
        MetricLoss(LOSS, None, DIM, BATCH.size, 9, 90)(
            rows()[:-1], torch.zeros(BATCH.size - 1).long(), torch.arange(BATCH.size - 1)
        )


def test_koleo_includes_all_images_of_the_batch() -> None:
    backbone = Backbone(name="test_vit", pretrained=False, arguments={"img_size": 32, "patch_size": 8})
    recipe = IrtRecipe(
        backbone=backbone,
        input={"size": 32, "resize": 32},
        batch=BATCH,
        loss=LOSS,
        memory=None,
        koleo_weight=4.0,
    )
    method, z = initial_method(recipe, 9, 90, seed=0), rows(1)
    fields = {field.name: None for field in dataclasses.fields(EmbeddingOutputs)}
    outputs = EmbeddingOutputs(**(fields | {"embedding": z}))
    terms = method.objective(outputs, torch.zeros(BATCH.size).long(), torch.arange(BATCH.size))
    torch.testing.assert_close(terms["tuple_contrastive"], by_hand(z), rtol=1e-12, atol=0)
    assert float(terms["koleo"]) == pytest.approx(4 * float(loss_oracle.koleo(z, 1e-6)), rel=1e-9)


def test_a_convolutional_network_with_generalized_mean_learns_from_tuples() -> None:
    backbone = Backbone(name="test_resnet", pretrained=False)
    recipe = BaselineRecipe(
        backbone=backbone,
        input={"size": 32, "resize": 32},
        batch=BATCH,
        loss=LOSS,
        dim=None,
        pooling=GemPooling(exponent=3.0, learnable=False),
    )
    method = initial_method(recipe, 9, 90, seed=0).train()
    outputs = method(torch.rand(BATCH.size, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    term = method.objective(outputs, torch.zeros(BATCH.size).long(), torch.arange(BATCH.size))[
        "tuple_contrastive"
    ]
    term.backward()
    assert term.item() == pytest.approx(by_hand(outputs.embedding.double()).item(), rel=1e-5)
    assert all(parameter.grad is not None for parameter in method.parameters() if parameter.requires_grad)
