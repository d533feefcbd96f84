"""`unseen.train`: the bytes of stage `train` for the same images, its folder, its errors."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pytorch_metric_learning import losses
from safetensors.torch import load_file
from torch import Tensor, nn

import unseen
from tests.training.jobs import job, killed_at, output_bytes, recipe
from unseen.cli.checks import results, settings_of
from unseen.cli.checks.common import CLASSES, DIM
from unseen.data.shards import Shards
from unseen.frozen.embedder import Embedder
from unseen.losses import own
from unseen.losses.multi_similarity import MultiSimilarity
from unseen.runtime import parts
from unseen.training import fit, loop
from unseen.training.fit import Trained, train

PAGE = Path(__file__).resolve().parents[2] / "docs/from-pytorch-metric-learning.md"
CPU = torch.device("cpu")
RECIPE = recipe("baseline")


class Squares(nn.Module):
    """Takes no references, as a loss of another library."""

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        same = (labels[:, None] == labels).to(embeddings.dtype)
        return (embeddings @ embeddings.T - same - self.margin).square().mean()


class Tuples(Squares):
    inputs = "tuples"


class Centres(nn.Module):
    """Has vectors of the classes."""

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(classes, dim, generator=torch.Generator().manual_seed(0)))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(embeddings @ self.centres.T, labels)


class Items(torch.utils.data.Dataset[Any]):
    def __init__(self, images: Any, labels: Any, form: Callable[[Any], Any]) -> None:
        self.images, self.labels, self.form = images, labels, form

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self.form(self.images[row]), int(self.labels[row])


@pytest.fixture(scope="module")
def images(tiny_set: Path) -> tuple[np.ndarray, np.ndarray]:
    """The train images of the tiny set as arrays, and their labels."""
    shards = Shards(tiny_set / "data/shards/tiny")
    rows = shards.rows("train")
    pictures = [np.asarray(Image.open(io.BytesIO(shards.image(int(row)).tobytes()))) for row in rows]
    return np.stack(pictures), shards.labels[rows]


@pytest.fixture(scope="module")
def staged(fresh_root: Callable[[], Path]) -> dict[str, bytes]:
    """The outputs of stage `train`."""
    staged = job(fresh_root(), RECIPE)
    loop.train(staged, 0, 1, CPU)
    return output_bytes(staged)


@pytest.fixture(scope="module")
def trained(images: Any, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return unseen.train(*images, RECIPE, output=tmp_path_factory.mktemp("trained") / "runs/mine")


def files(trained: Trained) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in trained.folder.rglob("*.safetensors")}


def weights(outputs: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in outputs.items() if name.endswith(".safetensors")}


def test_arrays_give_the_bytes_of_stage_train(trained: Trained, staged: dict[str, bytes]) -> None:
    assert len(files(trained)) == 3
    assert files(trained) == weights(staged)
    assert (trained.folder / "history.csv").read_bytes() == staged["0.csv"]
    assert [row["iteration"] for row in trained.history] == [5, 10, 12]
    assert {"loss", "map_at_r", "recall_at_1"} <= trained.history[0].keys()
    assert sorted(path.name for path in trained.folder.iterdir() if not path.name.startswith(".")) == [
        *("history.csv", "log.json", "model", "settings.json", "shards", "state")
    ]


FORMS: dict[str, Callable[[Any], Any]] = {
    "pillow": Image.fromarray,
    "array": lambda pixels: pixels,
    "tensor": lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1),
}


@pytest.mark.parametrize("form", [*FORMS, "paths"])
def test_other_images_give_the_same_bytes(
    form: str, images: Any, tmp_path: Path, staged: dict[str, bytes]
) -> None:
    pixels, labels = images
    if form == "paths":
        paths = [tmp_path / f"{row:03d}.png" for row in range(len(pixels))]
        for path, each in zip(paths, pixels, strict=True):
            Image.fromarray(each).save(path)
        result = train(paths, [f"class {label}" for label in labels], RECIPE, output=tmp_path / "out")
        assert Shards(tmp_path / "out/shards").source(0) == str(paths[0])
    else:
        result = train(Items(pixels, labels, FORMS[form]), recipe=RECIPE, output=tmp_path / "out")
    assert files(result) == weights(staged)


def test_embeds_as_the_embedder_does(trained: Trained, images: Any, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    Image.fromarray(images[0][7]).save(path)
    vectors = trained.embed(images[0][:9])
    assert vectors.shape == (9, 8)
    np.testing.assert_array_equal(trained.embed([path]), Embedder(trained.folder / "model")([path]))
    np.testing.assert_allclose(trained.embed([path])[0], vectors[7], atol=1e-6)
    assert not trained.method.training
    with pytest.raises(unseen.UserError, match=r"Image 1 cannot be decoded: .*missing\.png"):
        trained.embed([path, tmp_path / "missing.png"])


def test_an_object_as_a_loss_gives_the_weights_of_the_recipe_that_names_it(
    images: Any, tmp_path: Path, staged: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = MultiSimilarity(**RECIPE.loss.model_dump(exclude={"name"}))
    result = train(*images, RECIPE, loss=loss, output=tmp_path)
    assert files(result) == weights(staged)
    monkeypatch.setattr(own, "_objects", {})  # as in another process
    monkeypatch.setattr(parts, "_classes", {})
    again = Trained(tmp_path, [])
    assert again.model.recipe.loss.of == "unseen.losses.multi_similarity:MultiSimilarity"
    np.testing.assert_array_equal(again.embed(images[0][:3]), result.embed(images[0][:3]))
    with pytest.raises(RuntimeError, match="MultiSimilarity was an object of the program"):
        again.method.loss.pair(torch.eye(3), torch.arange(3))


@pytest.mark.parametrize("loss", [Squares(), Centres(CLASSES, DIM)])
def test_an_object_has_the_properties_of_a_loss(loss: nn.Module) -> None:
    """Also single precision under autocast, for which neither class cares."""
    block = own.own_loss(loss)
    checked = [*results(settings_of(block.pop("module"), block))]
    assert len(checked) == 7
    assert [result for result in checked if result.failure] == []


def test_class_vectors_of_a_loss_train_in_their_group(images: Any, tmp_path: Path) -> None:
    loss, before = Centres(10, 8), Centres(10, 8).centres
    fast = recipe("baseline", optimizer={"multipliers": {"proxies": 100.0}})
    slow = train(*images, RECIPE, loss=loss, output=tmp_path / "slow")
    assert files(train(*images, fast, loss=loss, output=tmp_path / "fast")) != files(slow)
    assert torch.equal(loss.centres, before)  # a copy was trained
    assert slow.model.method.loss.proxy is not None
    assert not any(name.startswith("loss") for name in load_file(tmp_path / "slow/model/weights.safetensors"))


def test_a_loss_of_pytorch_metric_learning_gives_the_curve_of_ours(images: Any, tmp_path: Path) -> None:
    without_miner = recipe("baseline", loss={"name": "multi_similarity", "mining_margin": None})
    ours = train(*images, without_miner, output=tmp_path / "ours")
    theirs = train(*images, RECIPE, loss=losses.MultiSimilarityLoss(2, 40, 0.5), output=tmp_path / "theirs")
    assert theirs.history[0]["loss"] == pytest.approx(ours.history[0]["loss"], rel=1e-4)


def test_the_same_call_continues_and_then_returns(
    images: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: dict[str, bytes]
) -> None:
    with killed_at(7):
        train(*images, RECIPE, loss=None, output=tmp_path)
    steps: list[int] = []
    take = loop.train_step
    monkeypatch.setattr(loop, "train_step", lambda *a: (steps.append(a[1].step), take(*a))[1])
    result = train(*images, RECIPE, output=tmp_path)
    assert steps == list(range(5, 12))
    assert files(result) == weights(staged)
    assert train(*images, RECIPE, output=tmp_path).history == result.history
    assert steps == list(range(5, 12))


def test_a_loss_continues_in_another_process(
    images: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = files(train(*images, RECIPE, loss=Centres(10, 8), output=tmp_path / "whole"))
    with killed_at(7):
        train(*images, RECIPE, loss=Centres(10, 8), output=tmp_path / "killed")
    monkeypatch.setattr(own, "_objects", {})
    assert files(train(*images, RECIPE, loss=Centres(10, 8), output=tmp_path / "killed")) == expected


def _swapped(images: Any) -> tuple[Any, Any]:
    return images[0][::-1], images[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y, out: train(x, y[:-1], RECIPE, output=out), r"60 images and labels of shape \(59,\)"),
        (lambda x, y, out: train(x[:0], y[:0], RECIPE, output=out), "There are 0 images"),
        (lambda x, y, out: train(x, y + 0.5, RECIPE, output=out), "Labels have the type float64"),
        (lambda x, y, out: train(x, np.arange(60), RECIPE, output=out), "Each of the 60 images has a class"),
        (lambda x, y, out: train(x / 255, y, RECIPE, output=out), r"Image \d+ is an array of .*float64"),
        (lambda x, y, out: train(x[..., :2], y, RECIPE, output=out), r"shape \(44, 40, 2\)"),
        (lambda x, y, out: train(["a.png"] * 2, [1, 1], RECIPE, output=out), "A path is listed twice"),
        (lambda x, y, out: train(["a.png", "b.png"], [1, 1], RECIPE, output=out), "a.png is not a complete"),
        (lambda x, y, out: train(x, y, "mss", output=out), "unknown methods.mss"),
        (lambda x, y, out: train(x, y, {"like": "ms", "dims": 3}, output=out), "dims is not a setting"),
        (lambda x, y, out: train(x, y, {"dim": -1}, output=out), "The recipe of unseen.train: dim"),
        (
            lambda x, y, out: train(
                x, y, recipe("baseline", memory={"size": 20}), loss=Squares(), output=out
            ),
            "Squares takes no references",
        ),
        (
            lambda x, y, out: train(x, y, RECIPE, loss=Tuples(), output=out),
            "does not take the loss Tuples: a loss with inputs = 'tuples'",
        ),
    ],
)
def test_wrong_arguments(call: Any, message: str, images: Any, tmp_path: Path) -> None:
    with pytest.raises(unseen.UserError, match=message):
        call(*images, tmp_path / "out")
    assert not (tmp_path / "out/model").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images: (images, recipe("baseline", dim=6), {}), r"differs in recipe\.dim \(8, now 6\)"),
        (lambda images: (images, RECIPE, {"seed": 3}), r"differs in seed \(0, now 3\)"),
        (lambda images: (_swapped(images), RECIPE, {}), "differs in shards"),
        (lambda images: (images, RECIPE, {"loss": Squares()}), r"differs in recipe\.loss\.alpha"),
    ],
)
def test_a_folder_is_of_one_training(change: Any, message: str, images: Any, trained: Trained) -> None:
    before = files(trained)
    (pixels, labels), settings, more = change(images)
    with pytest.raises(unseen.UserError, match=message):
        train(pixels, labels, settings, output=trained.folder, **more)
    assert files(trained) == before
    assert not (trained.folder / "shards.new").exists()


def test_an_edited_loss_is_another_training(images: Any, tmp_path: Path) -> None:
    train(*images, RECIPE, loss=Squares(), output=tmp_path)
    train(*images, RECIPE, loss=Squares(), output=tmp_path)
    with pytest.raises(unseen.UserError, match=r"recipe\.loss\.digest"):
        train(*images, RECIPE, loss=Squares(0.4), output=tmp_path)


def test_a_name_is_the_published_recipe_for_own_images() -> None:
    chosen = fit._recipe({"like": "proxy_anchor", "dim": 16, "training.iterations": 7}, None)
    assert (chosen.loss.name, chosen.dim, chosen.training.iterations) == ("proxy_anchor", 16, 7)
    assert chosen.backbone.name == "resnet50.tv_in1k"


@pytest.mark.slow
def test_the_page_for_users_of_pytorch_metric_learning_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len([line for line in blocks[1].splitlines() if line]) <= 15
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(block, names)
    recall, precision, low, high = map(float, capsys.readouterr().out.split())
    assert 0.4 < low <= precision <= high <= recall <= 1
    assert [row["iteration"] for row in names["trained"].history] == [10, 20]
    assert (tmp_path / "runs/mine/model/weights.safetensors").is_file()
