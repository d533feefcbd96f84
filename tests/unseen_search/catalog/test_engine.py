"""The ONNX model of a catalog: the answers of PyTorch, without its import."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.packages import require
from tests.photos import picture, save_model, save_photos
from unseen.frozen.embedder import Embedder
from unseen.runtime.errors import UserError
from unseen_search.catalog import Catalog, build, building
from unseen_search.catalog import catalog as module
from unseen_search.catalog.engine import ONNX, TOLERANCE, OnnxEngine
from unseen_search.catalog.onnx_model import checked_onnx

pytestmark = pytest.mark.slow

FIND = """
import sys
learning = ("torch", "torchvision", "timm", "cv2", "threadpoolctl")
graph = ("ray", "dvc", "ruamel", "matplotlib", "jinja2", "pandas", "scipy")
for name in (*learning, *graph):
    sys.modules[name] = None  # an import raises ModuleNotFoundError
from unseen.cli import main as cli
cli.main(["find", *sys.argv[1:], "-k", "11", "--json"])
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, photos and their catalog, which a process without the type checks built."""
    require("onnx", importlib.util.find_spec("onnxruntime"))
    root = tmp_path_factory.mktemp("engine")
    save_photos(root / "photos")
    save_model(root / "model", 1)
    index = "import sys; from unseen.cli import main as cli; cli.main(['index', *sys.argv[1:]])"
    options = ["--model", "model", "--labels", "folders", "--onnx"]
    command = [sys.executable, "-c", index, "photos", "catalog", *options]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    run = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, env=environment)
    assert "Warning" not in run.stderr
    assert not list(root.glob(".*.unfinished"))
    return root


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "runs_onnx", lambda: True)


def _photos(root: Path) -> list[Path]:
    return [root / "photos" / path for path in Catalog(root / "catalog").paths]


def test_answers_are_those_of_pytorch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = [*_photos(root), picture(99), picture(98, "PNG")]
    catalog = Catalog(root / "catalog")
    assert isinstance(catalog.engine, OnnxEngine)
    by_onnx = catalog.identify(photos, 5)
    monkeypatch.setattr(module, "runs_onnx", lambda: False)
    catalog = Catalog(root / "catalog")
    assert isinstance(catalog.engine, Embedder)
    for answer, expected in zip(by_onnx, catalog.identify(photos, 5), strict=True):
        assert [match.path for match in answer.matches] == [match.path for match in expected.matches]
        assert [(product.label, product.votes) for product in answer.products] == [
            (product.label, product.votes) for product in expected.products
        ]
        scores = [product.score for product in expected.products]
        assert [product.score for product in answer.products] == pytest.approx(scores, abs=TOLERANCE)
        similarities = [match.similarity for match in expected.matches]
        assert [match.similarity for match in answer.matches] == pytest.approx(similarities, abs=TOLERANCE)


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="a search uses the GPU")
def test_find_needs_no_pytorch_and_no_package_of_the_graph(root: Path) -> None:
    photo = _photos(root)[3]
    run = subprocess.run(
        [sys.executable, "-c", FIND, str(root / "catalog"), str(photo)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    (query,) = json.loads(run.stdout)["queries"]
    (expected,) = Catalog(root / "catalog").identify(photo, 11)
    assert [match["path"] for match in query["matches"]] == [match.path for match in expected.matches]
    assert query["matches"][0]["similarity"] == pytest.approx(1, abs=TOLERANCE)


def test_an_unreadable_photo_and_a_damaged_model_are_errors(root: Path, tmp_path: Path) -> None:
    catalog = Catalog(root / "catalog")
    with pytest.raises(UserError, match="a picture of 7 bytes cannot be read as a picture"):
        catalog.find(b"damaged")
    model = root / "catalog/model/model.onnx"
    content = model.read_bytes()
    try:
        model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(UserError, match=r"model.onnx is damaged: its sha256"):
            Catalog(root / "catalog").find(_photos(root)[0])
        with pytest.raises(UserError, match=r"model.onnx is damaged: its sha256"):
            Catalog(root / "catalog", verify=True)
    finally:
        model.write_bytes(content)


def test_a_model_with_other_vectors_is_not_stored(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored, photos = root / "catalog/model/model.onnx", _photos(root)
    unchanged = checked_onnx(Embedder(root / "model"), tmp_path / "a.onnx", stored, photos)
    assert unchanged is not None
    assert unchanged.difference <= TOLERANCE
    other = Embedder(save_model(tmp_path / "other", 2))
    assert checked_onnx(other, tmp_path / "b.onnx", stored, photos) is None
    assert "no ONNX model, PyTorch embeds: its vectors differ" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_is_an_error_and_no_catalog_without_an_onnx_model(root: Path, tmp_path: Path) -> None:
    (tmp_path / "catalog.unfinished").mkdir()
    (tmp_path / "catalog.unfinished" / ONNX).symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"The disk is full: .*catalog could not be written"):
        build(root / "photos", tmp_path / "catalog", root / "model", onnx=True)
    assert not (tmp_path / "catalog").exists()


def test_the_photos_of_the_catalog_have_the_vectors_of_their_queries(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(root / "catalog")
    photos = _photos(root)
    embedder = Embedder(root / "model")
    vectors = catalog.vectors()
    assert np.array_equal(vectors, catalog.engine(photos))
    assert not np.array_equal(vectors, embedder(photos))
    assert np.abs(vectors - embedder(photos)).max() <= TOLERANCE
    monkeypatch.setattr(building, "runs_onnx", lambda: True)
    copy = shutil.copytree(root / "catalog", tmp_path / "catalog")
    (root / "photos/new.jpg").write_bytes(picture(76))
    updated = build(root / "photos", copy)
    (root / "photos/new.jpg").unlink()
    place = updated.paths.index("new.jpg")
    assert np.array_equal(updated.vectors()[place], updated.engine([picture(76)])[0])
    assert not (tmp_path / "catalog.unfinished").exists()


def test_an_update_keeps_the_model_and_another_precision_has_none(root: Path) -> None:
    model = root / "catalog/model/model.onnx"
    before = model.read_bytes()
    (root / "photos/shelf 1/new.jpg").write_bytes(picture(77))
    updated = build(root / "photos", root / "catalog")
    assert len(updated) == 12
    assert model.read_bytes() == before
    assert isinstance(updated.engine, OnnxEngine)
    half = build(root / "photos", root / "half", root / "model", precision="bfloat16", onnx=True)
    assert half.about["onnx"] is None
    assert isinstance(half.engine, Embedder)
    (root / "photos/shelf 1/new.jpg").unlink()
    build(root / "photos", root / "catalog")
