"""Settings that depend on the data set: the K of Recall@K, and the classes that CIFAR trains on."""

from pathlib import Path

import pytest

from tests.params import resolve, write
from unseen.config.definitions import Definitions
from unseen.config.recipe_files import published
from unseen.config.resolve import ensemble_settings, evaluate_settings
from unseen.config.stages import EnsembleBlock, EnsembleSettings
from unseen.evaluation.settings import EvaluateBlock, EvaluateSettings
from unseen.experiments.printed.model import rows

RECALL_AT = {
    "cub": (1, 2, 4, 8),  # CRT table 3
    "cars": (1, 2, 4, 8),  # CRT table 3
    "sop": (1, 10, 100, 1000),  # CRT table 4
    "inshop": (1, 10, 20, 30, 40, 50),  # Multi-Head table 3
    "parts": (1, 2, 4, 8),  # the default
    "shoes": (1, 10, 100, 1000),  # a data set of kind sop
    "photos": (1, 2, 4, 8),
}


@pytest.mark.parametrize("dataset", RECALL_AT)
def test_the_k_of_recall_are_those_of_the_data_set_unless_the_user_sets_them(
    tmp_path: Path, dataset: str
) -> None:
    own = {"shoes": {"source": {"kind": "sop"}}, "photos": {"source": {"kind": "folder", "path": "."}}}
    known = Definitions(write(tmp_path, {"datasets": own}))
    assert evaluate_settings(known, EvaluateBlock(), dataset).recall_at == RECALL_AT[dataset]
    assert ensemble_settings(known, EnsembleBlock(), dataset).recall_at == RECALL_AT[dataset]
    changed = EvaluateBlock(recall_at=(1, 3), nmi=True)
    assert evaluate_settings(known, changed, dataset) == EvaluateSettings(recall_at=(1, 3), nmi=True)
    block = EnsembleBlock(recall_at=(5,), seeds=(0, 1))
    assert ensemble_settings(known, block, dataset) == EnsembleSettings(recall_at=(5,), seeds=(0, 1))


def test_the_k_of_each_data_set_include_those_of_its_published_rows() -> None:
    for row in rows():
        printed = {int(name.rpartition("_")[2]) for name in row.metrics if name.startswith("recall_at_")}
        if row.dataset in RECALL_AT and not row.quoted:
            assert printed <= set(RECALL_AT[row.dataset]), row


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_official_parts_of_cifar_are_trained_on_completely(tmp_path: Path, dataset: str) -> None:
    images = {"source": {"kind": dataset, "split": "images"}}
    for method in published("methods"):
        protocol = resolve(write(tmp_path, {"datasets": {}}), dataset, method).training.protocol
        assert protocol == "selected"
        params = write(tmp_path, {"datasets": {dataset: images}})
        assert resolve(params, dataset, method).training.protocol == "published"
        own = {dataset: images | {"recipe": {"training": {"protocol": "refit"}}}}
        assert resolve(write(tmp_path, {"datasets": own}), dataset, method).training.protocol == "refit"
