"""Stage check: what is missing on the disk is named before anything runs; every data set of params.yaml has a folder for DVC to watch."""

import shutil
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from stages.check import require_files

from pipeline.config import FolderSource, Params, PartsSource, Source, resolve
from pipeline.config.dataset import CollageSource, CubSource, InshopSource, LandmarksSource, TokensSource
from pipeline.methods.fit import require_fit
from pipeline.runtime.errors import UserError
from stages import check

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", [kind for kind in get_args(get_args(Source)[0]) if "path" in kind.model_fields], ids=lambda kind: kind.__name__)
def test_a_set_that_is_not_there_says_what_to_do(tmp_path: Path, kind: type[CubSource]) -> None:
    with pytest.raises(UserError) as caught:
        require_files(kind(path=str(tmp_path / "raw")), "mine")
    assert str(caught.value).startswith(f"{tmp_path / 'raw'} does not exist.\n")
    assert "datasets.mine.source.path" in caught.value.remedy
    published = kind is not FolderSource
    assert ("Its page is http" in caught.value.remedy) is published


def test_the_published_file_is_named_with_size_hash_page_and_command(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*\n")  # as git brings it
    (tmp_path / ".CUB_200_2011.tgz.partial").write_bytes(b"half")
    with pytest.raises(UserError, match="is empty") as caught:
        require_files(CubSource(path=str(tmp_path)), "cub")
    for part in ("CUB_200_2011.tgz", "1,150,585,339 bytes", "97eceeb196236b17998738112f37df78", "make data DATASET=cub", "vision.caltech.edu"):
        assert part in caught.value.remedy
    (tmp_path / "CUB_200_2011.tgz").write_bytes(b"whole")
    require_files(CubSource(path=str(tmp_path)), "cub")
    require_files(CubSource(path=str(tmp_path / "CUB_200_2011.tgz")), "cub")


def test_a_set_without_a_direct_link_promises_no_download(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        require_files(InshopSource(path=str(tmp_path)), "inshop")
    assert "make data" not in caught.value.remedy
    assert "agreement" in caught.value.remedy


def test_a_set_made_of_another_one_asks_for_that(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make data DATASET=cifar100"):
        require_files(CollageSource(path=str(tmp_path)), "collage")


def test_every_part_of_landmarks_is_asked_for_unless_it_is_left_out(tmp_path: Path) -> None:
    for part in ("sfm120k", "roxford5k"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "list.pkl").touch()
    places = {part: str(tmp_path / part) for part in ("sfm120k", "roxford5k", "rparis6k")}
    with pytest.raises(UserError, match=r"rparis6k does not exist[^\n]*\n.*make data DATASET=rparis6k.*datasets\.landmarks\.source\.rparis6k"):
        require_files(LandmarksSource(**places), "landmarks")
    require_files(LandmarksSource(**places | {"rparis6k": None}), "landmarks")


def test_a_set_that_is_drawn_needs_nothing() -> None:
    require_files(PartsSource(), "parts")
    require_files(TokensSource(), "tokens")


def test_every_data_set_has_a_folder_that_git_brings() -> None:
    """Stage ingest depends on data/raw/<d>, and DVC refuses a dependency that does not exist."""
    for dataset in Params(ROOT / "params.yaml").names("datasets"):
        assert (ROOT / "data/raw" / dataset / ".gitignore").is_file(), dataset


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """params.yaml in an empty project of its own."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_STAGE", raising=False)
    return tmp_path / "params.yaml"


def test_the_committed_settings_are_sound(project: Path) -> None:
    check.run()
    assert (project.parent / "data/check/passed").read_text() == "params.yaml is sound\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "backbone: {name: test_resnet, pretrained: false",
            "backbone: {name: test_resnat, pretrained: false",
            r"ms on parts: timm has no network 'test_resnat'\. Did you mean test_resnet[^\n]*\n.*\n.*-S 'datasets\.parts\.recipe\.backbone\.name=",
        ),
        (
            "backbone: {name: test_resnet, pretrained: false",
            "backbone: {name: test_resnet, checkpoint: none.safetensors, pretrained: false",
            r"The checkpoint none\.safetensors of test_resnet is not there\.[^$]*-S 'datasets\.parts\.recipe\.backbone\.checkpoint=\.\.\.'",
        ),
        ("workers: 1\n  gpu", "workers: 5\n  gpu", r"5 workers cannot share a batch of 48 images[^$]*-S 'datasets\.parts\.recipe\.batch\.classes="),
        ("arguments: {output_stride: 8}", "arguments: {output_strid: 8}", r"ms on parts: .*timm cannot build test_resnet .*output_strid"),
    ],
)
def test_what_would_stop_a_training_stops_the_check(project: Path, old: str, new: str, message: str) -> None:
    text = project.read_text()
    assert old in text
    project.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        check.run()
    assert not (project.parent / "data").exists()


def test_too_few_classes_of_ones_own_are_known_before_an_image_is_read(project: Path) -> None:
    for name, image in product(range(21), range(3)):
        path = project.parent / f"data/raw/folder/{name}/{image}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    text = (
        project.read_text()
        .replace("datasets: [parts]", "datasets: [folder]")
        .replace("backbone: {name: resnet50.tv_in1k}", "backbone: {name: test_resnet}")
    )
    project.write_text(text.replace("[ms, crt, multihead, gsp, irt_r]", "[gsp, ms]").replace("sweeps: [gsp]", "sweeps: []"))
    message = r"A batch needs 16 classes, and only 8 can be trained on\.[^$]*-S '\+\+datasets\.folder\.recipes\.ms\.batch\.classes=8'"
    with pytest.raises(UserError, match=message):
        check.run()


@pytest.mark.parametrize(
    ("dataset", "method", "changed", "message"),
    [
        ("cub", "irt_r", {"input.size": 232}, "takes images of 224 x 224, input.size is 232"),
        ("cub", "gsp", {}, r"No library fetches the pretrained weights of bn_inception[^$]*backbone\.checkpoint"),
        ("tokens", "ms", {"backbone.pretrained": True}, "Nobody has published weights of token_embedding"),
        ("parts", "multihead", {"backbone.stages": [-9, -1]}, "feature maps"),
        ("parts", "ms", {"pooling.name": "cls"}, "class token"),
    ],
)
def test_a_recipe_that_makes_no_method_is_known_without_its_weights(dataset: str, method: str, changed: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        require_fit(resolve(Params(ROOT / "params.yaml"), dataset, method, changed))


@pytest.mark.parametrize("dataset", ["folder", "tokens", "landmarks"])
def test_every_recipe_makes_a_method(dataset: str) -> None:
    params = Params(ROOT / "params.yaml")
    for method in params.names("methods"):
        require_fit(resolve(params, dataset, method, {"backbone.pretrained": False}))
