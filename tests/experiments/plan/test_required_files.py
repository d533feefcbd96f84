"""The check of files before any long stage: images, archives and checkpoints."""

from pathlib import Path

import pytest

from tests.params import project, resolve
from unseen.data.ingest.settings import (
    SOURCES,
    CollageSource,
    CubSource,
    InshopSource,
    LandmarksSource,
    OwnSource,
    PartsSource,
    TokensSource,
)
from unseen.experiments.plan.checks import require_checkpoint, require_files, require_statistics
from unseen.experiments.plan.files import check, plan
from unseen.runtime.errors import UserError


@pytest.mark.parametrize(
    "kind",
    [kind for kind in SOURCES.values() if "path" in kind.model_fields],
    ids=lambda kind: kind.__name__,
)
def test_the_error_of_a_missing_set_has_a_remedy(tmp_path: Path, kind: type[CubSource]) -> None:
    with pytest.raises(UserError) as caught:
        require_files(kind(path=str(tmp_path / "raw")), "mine")
    assert str(caught.value).startswith(f"{tmp_path / 'raw'} does not exist.\n")
    assert "datasets.mine.source.path" in caught.value.remedy
    published = not issubclass(kind, OwnSource)
    assert ("Its page is http" in caught.value.remedy) is published


def test_names_the_published_file_with_size_hash_page_and_command(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*\n")  # as in a git clone
    (tmp_path / ".CUB_200_2011.tgz.partial").write_bytes(b"half")
    with pytest.raises(UserError, match="is empty") as caught:
        require_files(CubSource(path=str(tmp_path)), "cub")
    for part in (
        "CUB_200_2011.tgz",
        "1,150,585,339 bytes",
        "97eceeb196236b17998738112f37df78",
        "unseen data cub",
        "vision.caltech.edu",
    ):
        assert part in caught.value.remedy
    (tmp_path / "CUB_200_2011.tgz").write_bytes(b"whole")
    require_files(CubSource(path=str(tmp_path)), "cub")
    require_files(CubSource(path=str(tmp_path / "CUB_200_2011.tgz")), "cub")


def test_a_set_without_direct_link_offers_no_download(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        require_files(InshopSource(path=str(tmp_path)), "inshop")
    assert "unseen data" not in caught.value.remedy
    assert "agreement" in caught.value.remedy


def test_a_derived_set_requires_its_source(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unseen data cifar100"):
        require_files(CollageSource(path=str(tmp_path)), "collage")


def test_landmarks_require_every_part_that_is_not_excluded(tmp_path: Path) -> None:
    for part in ("sfm120k", "roxford5k"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "list.pkl").touch()
    places = {part: str(tmp_path / part) for part in ("sfm120k", "roxford5k", "rparis6k")}
    with pytest.raises(
        UserError,
        match=r"rparis6k does not exist[^\n]*\n.*unseen data rparis6k.*datasets\.landmarks\.source\.rparis6k",
    ):
        require_files(LandmarksSource(**places), "landmarks")
    require_files(LandmarksSource(**places | {"rparis6k": None}), "landmarks")


def test_a_drawn_set_requires_no_file() -> None:
    require_files(PartsSource(), "parts")
    require_files(TokensSource(), "tokens")


def test_refuses_a_checkpoint_that_differs_from_its_published_hash(folder: Path) -> None:
    path = folder / "resnet50-0676ba61.pth"
    path.write_bytes(b"cut short")
    params = project(folder, {"datasets.cub": {"recipe": {"backbone": {"checkpoint": str(path)}}}})
    with pytest.raises(UserError, match=r"resnet50-0676ba61\.pth is not the published file.* 0676ba61"):
        require_checkpoint(resolve(params, "cub", "multihead"))
    own = path.rename(folder / "own.pth")
    params = project(folder, {"datasets.cub": {"recipe": {"backbone": {"checkpoint": str(own)}}}})
    require_checkpoint(resolve(params, "cub", "multihead"))


@pytest.mark.parametrize(
    ("name", "input", "message"),
    [
        (
            "resnet18",
            {},
            r"mean \[0\.485, 0\.456, 0\.406\], std .* as resnet18\.a1_in1k, (.|\n)*backbone\.name="
            r"resnet18\.a1_in1k, or set input\.mean(.|\n)*unseen measure PHOTOS --network resnet18 ",
        ),
        ("resnet18", {"mean": [0.5, 0.5, 0.5]}, r"of resnet18 was trained are unknown"),
        ("resnet10t_unpublished", {}, r"Candidates:\n  mean \[0\.485(.|\n)*\n  Set input\.mean"),
        ("resnet18", {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}, None),
        ("resnet18.tv_in1k", {}, None),
        ("bn_inception", {}, None),
    ],
)
def test_refuses_a_checkpoint_whose_statistics_are_unknown(
    folder: Path, name: str, input: dict[str, list[float]], message: str | None
) -> None:
    blocks = {"backbone": {"name": name, "checkpoint": "own.pth"}, "input": input}
    params = project(folder, {"datasets.cub": {"recipe": blocks}})
    recipe = resolve(params, "cub", "ms")
    if message is None:
        require_statistics(recipe)
        return
    with pytest.raises(UserError, match=message):
        require_statistics(recipe)


@pytest.mark.slow
def test_resolve_refuses_a_checkpoint_whose_statistics_are_unknown(folder: Path) -> None:
    (folder / "data/raw/parts").mkdir(parents=True)
    (folder / "own.pth").write_bytes(b"weights")
    backbone = {"name": "resnet18", "checkpoint": "own.pth"}
    with pytest.raises(
        UserError, match=r"own\.pth of resnet18 was trained are unknown[^$]*-S '\+\+\S*ms\.input\.mean"
    ):
        check(plan(project(folder, {"methods.ms.backbone": backbone})))
