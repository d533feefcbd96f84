"""The loss terms of each method on a batch equal the slow definitions in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.small import CLASSES, SAMPLES, batch, places, recipe
from tests.oracles import methods as oracle
from unseen.losses.memory import CrossBatchMemory
from unseen.methods.build import initial_method
from unseen.methods.method import Method

CONTRASTIVE = {"name": "contrastive", "margin": 0.3}


def built(method: str, **blocks: Any) -> tuple[Any, Any]:
    settings = recipe(method, **blocks)
    return settings, initial_method(settings, CLASSES, SAMPLES, seed=0).double().train()


def compare(terms: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(terms) == list(expected)
    for name in terms:
        torch.testing.assert_close(
            terms[name], expected[name], rtol=1e-8, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("loss", [{"name": "multi_similarity"}, CONTRASTIVE])
@pytest.mark.parametrize("memory", [None, {"size": 30, "weight": 0.7}])
def test_baseline(loss: dict, memory: dict | None) -> None:
    settings, method = built("baseline", loss=loss, memory=memory)
    remembered = oracle.Memory(30) if memory else None
    for step in range(4):  # 48 samples: the memory overwrites its oldest rows
        images, labels = batch(step, torch.float64)
        outputs = method(images)
        compare(
            method.objective(outputs, labels, places(labels)),
            oracle.baseline(settings, outputs.embedding, labels.tolist(), remembered),
        )


@pytest.mark.slow
@pytest.mark.parametrize("prototypes", [1, 5])
def test_crt(prototypes: int) -> None:
    branch = {"prototypes": prototypes, "dim": 12, "hidden": 6, "loss_weight": 0.1}
    settings, method = built("crt", auxiliary=branch, diversity_weight=0.4, consistency_weight=0.6)
    images, labels = batch(0, torch.float64)
    outputs = method(images)
    expected = oracle.crt(
        settings, outputs.embedding, outputs.auxiliary, method.branches.prototypes, labels.tolist()
    )
    compare(method.objective(outputs, labels, places(labels)), expected)


def test_crt_without_its_transform_has_no_prototypes() -> None:
    settings, method = built("crt", transform="average")
    images, labels = batch(0, torch.float64)
    outputs = method(images)
    compare(
        method.objective(outputs, labels, places(labels)),
        oracle.crt(settings, outputs.embedding, outputs.auxiliary, (), labels.tolist()),
    )
    pooled = method.backbone(images).maps[-1].mean((2, 3))
    expected = torch.nn.functional.normalize(method.branches.layers[0].linear(pooled), dim=1)
    torch.testing.assert_close(outputs.embedding, expected)


def test_crt_counts_shared_prototypes_once() -> None:
    branch = {"prototypes": 4, "dim": 12, "hidden": 6, "loss_weight": 0.1}
    settings, method = built("crt", auxiliary=branch, branches="shared", networks="shared")
    images, labels = batch(0, torch.float64)
    outputs = method(images)
    expected = oracle.crt(
        settings, outputs.embedding, outputs.auxiliary, method.branches.prototypes[:1], labels.tolist()
    )
    compare(method.objective(outputs, labels, places(labels)), expected)


def test_multihead() -> None:
    settings, method = built("multihead")
    images, labels = batch(0, torch.float64)
    outputs = method(images)
    compare(
        method.objective(outputs, labels, places(labels)),
        oracle.multihead(settings, outputs.embedding, method.loss.proxy.proxies, labels.tolist()),
    )


@pytest.mark.parametrize("zero_shot", [{}, {"weight": 0.4}, None])
@pytest.mark.parametrize("memory", [None, {"size": 30, "weight": 0.7}])
def test_gsp(zero_shot: dict | None, memory: dict | None) -> None:
    settings, method = built("gsp", zero_shot=zero_shot, memory=memory)
    remembered = oracle.Memory(30) if memory else None
    for step in range(3):
        images, labels = batch(step, torch.float64)
        outputs = method(images)
        classes = None if zero_shot is None else method.zero_shot.class_embeddings
        expected = oracle.gsp(
            settings, outputs.embedding, outputs.attributes, classes, labels.tolist(), remembered, step > 1
        )
        compare(method.objective(outputs, labels, places(labels)), expected)
    assert bool(method.head.pooling.gsp.initialized)  # 24 places, filled by the second batch


@pytest.mark.parametrize("memory", [None, {"size": 20}, {"share": 0.9, "size": None}])
def test_irt(memory: dict | None) -> None:
    settings, method = built("irt", memory=memory)
    size = 0 if memory is None else memory["size"] or round(0.9 * SAMPLES)
    remembered = oracle.Memory(size) if memory else None
    for step in range(4):
        images, labels = batch(step, torch.float64)
        outputs = method(images)
        compare(
            method.objective(outputs, labels, places(labels)),
            oracle.irt(settings, outputs.embedding, labels.tolist(), remembered),
        )


@pytest.mark.parametrize("method", ["baseline", "gsp", "irt"])
def test_a_memory_that_starts_later_is_empty_until_then(method: str) -> None:
    _, delayed = built(method, memory={"size": 24, "start": 2})
    _, without = built(method, memory=None)
    for step in range(3):
        images, labels = batch(step, torch.float64)
        terms, without_memory = (
            delayed.objective(delayed(images), labels, places(labels)),
            without.objective(without(images), labels, places(labels)),
        )
        assert int(delayed.loss.memory.filled) == (12 if step == 2 else 0)
        if step < 2:
            assert {name: terms[name] for name in without_memory} == without_memory
            assert method == "irt" or float(terms["memory"]) == 0
        elif method != "irt":
            assert float(terms["memory"]) > 0
    assert list(terms) == list(delayed.objective(delayed(images), labels, places(labels))), (
        "a history has the same columns in every row"
    )


def test_a_memory_contains_at_least_one_batch() -> None:
    _, method = built("irt", memory={"share": 0.01, "size": None})
    assert len(method.loss.memory.labels) == 12


@pytest.mark.parametrize("method", ["baseline", "multihead", "gsp", "irt"])
def test_the_objective_in_eval_mode_changes_no_state(method: str) -> None:
    _, module = built(method, **({} if method == "multihead" else {"memory": {"size": 24}}))
    images, labels = batch(0, torch.float64)
    module.eval()
    state_before = {name: value.clone() for name, value in module.state_dict().items()}
    terms = module.objective(module(images), labels, places(labels))
    assert all(bool(torch.isfinite(term)) for term in terms.values())
    assert all(torch.equal(state_before[name], value) for name, value in module.state_dict().items())


def test_crt_refuses_a_loss_without_its_second_branch() -> None:
    _, method = built("crt")
    images, labels = batch(0, torch.float64)
    with pytest.raises(ValueError, match="only in training mode"):
        method.objective(method.eval()(images), labels, places(labels))


def test_only_the_objective_updates_memories() -> None:
    _, method = built("gsp", memory={"size": 24})
    images, _ = batch(0, torch.float64)
    method(images)
    memories = [module for module in _modules(method) if isinstance(module, CrossBatchMemory)]
    assert [int(memory.filled) for memory in memories] == [0]
    assert int(method.head.pooling.gsp.observed) == 0


def _modules(method: Method) -> list[torch.nn.Module]:
    return list(method.modules())
