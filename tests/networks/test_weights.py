"""The table of published weights, and the comparison of files with their hashes."""

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tools.docs.weights import markdown
from unseen.networks import weights
from unseen.networks.backbone import Backbone, timm
from unseen.networks.googlenet import torchvision
from unseen.networks.networks import PROJECT_NETWORKS
from unseen.networks.weights import PublishedWeights, published_digits, published_weights

ROOT = Path(__file__).resolve().parents[2]


def test_the_document_agrees_with_the_table() -> None:
    assert (ROOT / "docs/weights.md").read_text(encoding="utf-8") == markdown(), (
        "run `python -m tools.docs.weights > docs/weights.md`"
    )


@pytest.mark.slow
def test_each_row_names_weights_that_the_libraries_have() -> None:
    for name, row in published_weights().items():
        files = set(row.files)
        if name in PROJECT_NETWORKS:
            published = PROJECT_NETWORKS[name].build({}).published
            assert published.file in files
            assert row.url == published.page
        else:
            settings = timm.get_pretrained_cfg(name)
            assert settings.tag, "the tag is part of the name"
            assert settings.has_weights
            assert row.url == f"https://huggingface.co/{settings.hf_hub_id}"
            if settings.url.endswith(".pth"):
                assert Path(settings.url).name in files


def test_hashes_are_those_in_the_names_of_the_files() -> None:
    named = [
        (file, digits) for row in published_weights().values() for file, digits in row.files.items() if digits
    ]
    assert len(named) > 10
    for file, digits in named:
        assert Path(file).stem.endswith(f"-{digits}")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("resnet18.tv_in1k", "resnet18"),
        ("resnet50.tv_in1k", "resnet50"),
        ("resnet101.tv_in1k", "resnet101"),
        ("googlenet", "googlenet"),
    ],
)
def test_accuracy_and_file_equal_those_of_torchvision(name: str, model: str) -> None:
    published = torchvision.models.get_model_weights(model).IMAGENET1K_V1
    assert published_weights()[name].top1 == published.meta["_metrics"]["ImageNet-1K"]["acc@1"]
    assert Path(published.url).name in published_weights()[name].files


def test_refuses_a_row_with_an_invalid_hash() -> None:
    with pytest.raises(ValueError, match=r"a: b\.pth: 8 to 64 hexadecimal digits expected, got '3791377'"):
        PublishedWeights("a", "url", "us", "images", 1.0, "us", {"b.pth": "3791377"})


def test_refuses_a_checkpoint_that_differs_from_its_published_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights-00000000.pth"
    network = timm.create_model("test_resnet", num_classes=0)
    torch.save(network.state_dict(), path)
    digits = hashlib.sha256(path.read_bytes()).hexdigest()[:8]

    def listed(value: str) -> dict[str, PublishedWeights]:
        return {"a": PublishedWeights("a", "url", "us", "images", 1.0, "us", {path.name: value})}

    monkeypatch.setattr(weights, "published_weights", lambda: listed(digits))
    Backbone("test_resnet", checkpoint=path)
    monkeypatch.setattr(weights, "published_weights", lambda: listed("0123abcd"))
    with pytest.raises(ValueError, match=rf"starts with {digits}, the published one with 0123abcd\. Delete"):
        Backbone("test_resnet", checkpoint=path)
    own = path.rename(tmp_path / "own.pth")
    assert published_digits(own) is None
    Backbone("test_resnet", checkpoint=own)


def test_refuses_a_file_of_the_hub_that_differs_from_the_hash_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of the hub: snapshots link to files that are named by their SHA-256."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--timm--test_resnet.r160_in1k"
    blobs, snapshot = repository / "blobs", repository / "snapshots/abc"
    for folder in (blobs, snapshot, repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs/main").write_text("abc")
    state = timm.create_model("test_resnet").state_dict()
    save_file(state, blobs / "file")
    digest = hashlib.sha256((blobs / "file").read_bytes()).hexdigest()
    stored = (blobs / "file").rename(blobs / digest)
    (snapshot / "model.safetensors").symlink_to(stored)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda *_, **__: dict(state))
    Backbone("test_resnet", pretrained=True)
    with stored.open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match="is not the published file"):
        Backbone("test_resnet", pretrained=True)
