"""What a wrong call of a loss by name gives: one ValueError, never a number.

The situations are those that users of other libraries reported (pytorch-metric-learning 93, 209, 306, 356,
451; open-metric-learning 201). Each is tried with every loss.
"""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

import unseen
from unseen.losses.contrastive import Contrastive
from unseen.losses.door import checked
from unseen.methods.by_name import LOSSES, sizes_of

CLASSES, DIM, BATCH = 8, 16, 8
SIZES = {"classes": CLASSES, "dim": DIM, "samples": 30, "attributes": DIM}
FREE = ("zero_shot", "diversity")  # their vectors may have any length
OTHERS = ("tuple_contrastive", "koleo", "diversity", "consistency")  # without labels


def built(name: str, **sizes: int) -> torch.nn.Module:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"memory": {"size": 40}, "partial_fc": {"share": 0.5}}.get(name, {})
    needed = {size: (SIZES | sizes)[size] for size in sizes_of(name)}
    return unseen.loss(name, **needed, **settings)


def batch() -> tuple[Tensor, Tensor]:
    rows = torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(0))
    return normalize(rows, dim=1), torch.arange(BATCH) // 2


def call(loss: torch.nn.Module, name: str, vectors: Tensor, labels: Any) -> Tensor:
    """The loss of this batch, which is also its positives and negatives."""
    if name == "tuple_contrastive":
        value = loss(vectors, vectors, vectors[:, None])
    elif name == "consistency":
        value = loss(vectors, vectors)
    elif name in ("koleo", "diversity"):
        value = loss(vectors)
    elif name == "snca":
        value = loss(vectors, labels, torch.arange(len(vectors)))
    else:
        value = loss(vectors, labels)
    assert isinstance(value, Tensor)
    return value


def scaled(factor: float) -> Callable[[Tensor, Tensor], tuple[Tensor, Any]]:
    def change(vectors: Tensor, labels: Tensor) -> tuple[Tensor, Any]:
        return torch.cat([vectors[:3], factor * vectors[3:4], vectors[4:]]), labels

    return change


def labelled(label: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Any]]:
    return lambda vectors, labels: (vectors, torch.where(torch.arange(len(labels)) == 5, label, labels))


# A change of the batch, and the problem that the losses state; None: a right call. RANGE: of losses with
# vectors of their classes. UNIT: of losses of unit vectors.
RANGE, UNIT = r"labels: expected 0 to \d+ in row 5, got", "expected the length 1 in row 3"
COUNT = r"labels: the shape \(\d+,\) has B = \d+, but \w+ has B = 8"
NUMBER = "expected the length 1 in row 3, got nan|expected a finite length in row 3, got nan"
SITUATIONS: dict[str, tuple[Callable[[Tensor, Tensor], tuple[Tensor, Any]], str | None]] = {
    "half": (lambda z, y: (z.half(), y), None),
    "bfloat16": (lambda z, y: (z.bfloat16(), y), None),
    "no pair": (lambda z, y: (z, torch.arange(BATCH)), None),
    "one class": (lambda z, y: (z, torch.zeros_like(y)), None),
    "equal vectors": (lambda z, y: (z[:1].repeat(len(z), 1), y), None),
    "a NaN": (scaled(float("nan")), NUMBER),
    "label -1": (labelled(-1), RANGE),
    "label -100": (labelled(-100), RANGE),
    "label C": (labelled(CLASSES), RANGE),
    "label 2^40": (labelled(2**40), RANGE),
    "1 label": (lambda z, y: (z, y[:1]), COUNT),
    "4 labels": (lambda z, y: (z, y[:4]), COUNT),
    "7 labels": (lambda z, y: (z, y[:7]), COUNT),
    "9 labels": (lambda z, y: (z, torch.cat([y, y[:1]])), COUNT),
    "16 labels": (lambda z, y: (z, torch.cat([y, y])), COUNT),
    "a column of labels": (
        lambda z, y: (z, y[:, None]),
        r"labels: expected the axes B, got the shape \(8, 1",
    ),
    "real labels": (lambda z, y: (z, y + 0.5), r"labels: expected integers, got torch\.float32"),
    "labels of numpy": (lambda z, y: (z, y.numpy()), "labels: expected a tensor, got ndarray"),
    "no image": (lambda z, y: (z[:0], y[:0]), r"got the shape \(0, 16\), which has no row"),
    "one image": (lambda z, y: (z[:1], y[:1]), None),
    "length 1.001": (scaled(1.001), None),
    "length 3": (scaled(3), UNIT),
    "length 6": (scaled(6), UNIT),
    "length 10": (scaled(10), UNIT),
    "length 30": (scaled(30), UNIT),
    "length 0": (scaled(0), UNIT),
    "labels of another type": (lambda z, y: (z, y.to(torch.uint8)), None),
    "vectors of numpy": (lambda z, y: (z.numpy(), y), "expected a tensor, got ndarray"),
    "integer vectors": (lambda z, y: (z.round().long(), y), r"expected real numbers, got torch\.int64"),
    "one vector": (lambda z, y: (z[0], y), r"expected the axes \w+ x \w+, got the shape \(16,\)"),
    "another device": (lambda z, y: (z, y.to("meta")), "several devices: .*labels on meta"),
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_wrong_call_is_one_error(name: str, situation: str) -> None:
    change, problem = SITUATIONS[situation]
    if problem is not None and (
        (name in OTHERS and "labels" in problem)
        or (name in FREE and problem == UNIT)
        or (
            problem == RANGE
            and "classes" not in sizes_of(name)
            and not (name == "snca" and "-1" in situation)
        )
    ):
        problem = None  # a right call
    vectors, labels = change(*batch())
    loss = built(name)
    if problem is not None:
        with pytest.raises(ValueError, match=problem):
            call(loss, name, vectors, labels)
        return
    vectors = vectors.requires_grad_()
    value = call(loss, name, vectors, labels)
    value.backward()
    assert value.isfinite()
    assert vectors.grad is not None
    assert vectors.grad.isfinite().all()


def references() -> tuple[Tensor, Tensor, Tensor]:
    """A memory of ten images, of which the last eight are the batch."""
    vectors, labels = batch()
    return torch.cat([vectors[:2], vectors]), torch.cat([labels[:2], labels]), torch.arange(2, 10)


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        (
            "triplet",
            lambda z, y: (z,),
            r"call is wrong: .*'labels'.*Call loss\(embeddings, labels, references",
        ),
        ("triplet", lambda z, y: (z, y, references()[0]), "references and reference_labels must be given"),
        ("triplet", lambda z, y: (z, y, None, None, y), "self_index requires references"),
        (
            "triplet",
            lambda z, y: (z, y, references()[0][:, :9], references()[1]),
            "D = 9, but embeddings has D",
        ),
        ("triplet", lambda z, y: (z, y, references()[0], y), "S = 8, but references has S = 10"),
        (
            "triplet",
            lambda z, y: (z, y, *references()[:2], y + 7),
            "self_index: expected 0 to 9 in row 6, got 10",
        ),
        ("cosface", lambda z, y: (normalize(z[:, :9], dim=1), y), "D = 9, but the loss has D = 16"),
        ("snca", lambda z, y: (z, y, torch.arange(8) + 23), "samples: expected 0 to 29 in row 7, got 30"),
        ("zero_shot", lambda z, y: (z[:, :9], y), "expected 16 attributes, got 9"),
        ("memory", lambda z, y: (z.repeat(6, 1), y.repeat(6)), "a batch of 48 does not fit"),
    ],
)
def test_inputs_that_differ(name: str, arguments: Callable[..., Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        built(name)(*arguments(*batch()))


def test_a_right_call_has_the_value_of_the_loss() -> None:
    plain, loss = Contrastive(0.5), checked(Contrastive(0.5))
    vectors, labels = batch()
    assert loss(vectors, labels.int()) == plain(vectors, labels) > 0
    in_memory = loss(vectors, labels=labels, references=references()[0], reference_labels=references()[1])
    assert in_memory == plain(vectors, labels, *references()[:2]) > 0
    assert loss(vectors, labels, vectors[:0], labels[:0]) == 0
    assert loss.state_dict().keys() == plain.state_dict().keys()
    with pytest.raises(ValueError, match="labels: the shape"):
        pickle.loads(pickle.dumps(loss))(vectors, labels[:1])
