"""Omniglot as two archives, as two folders and in one archive, and refusal of other files."""

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.data.decode import decode
from unseen.data.ingest.census import Count
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, OmniglotSource
from unseen.data.ingest.sources import omniglot
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

PARTS = {"images_background": {"Greek": 2, "Latin": 3}, "images_evaluation": {"Tibetan": 2}}
DRAWERS = 3
PUBLISHED = (omniglot.DRAWERS, omniglot.COUNTS, omniglot.ALPHABETS)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(omniglot, "DRAWERS", DRAWERS)
    monkeypatch.setattr(omniglot, "COUNTS", {"train": Count(15, 5), "test": Count(6, 2)})
    monkeypatch.setattr(omniglot, "ALPHABETS", {"train": 2, "test": 1})


def drawing(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((105, 105)) < 0.8


def one_bit(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def folders(root: Path) -> Path:
    number = 0
    for part, alphabets in PARTS.items():
        for alphabet, characters in alphabets.items():
            for character in range(1, characters + 1):
                number += 1
                folder = root / part / alphabet / f"character{character:02d}"
                folder.mkdir(parents=True)
                for drawer in range(1, DRAWERS + 1):
                    content = one_bit(drawing(100 * number + drawer))
                    (folder / f"{number:04d}_{drawer:02d}.png").write_bytes(content)
    return root


def zipped(root: Path, archive: Path, part: str = "", prefix: str = "") -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((root / part).rglob("*.png")):
            file.write(path, prefix + path.relative_to(root).as_posix())


def run(path: Path, output: Path) -> dict[str, Any]:
    return ingest(OmniglotSource(path=str(path)), IngestSettings(), output, "omniglot", 1)


def test_published_counts() -> None:
    assert PUBLISHED == (20, {"train": (19_280, 964), "test": (13_180, 659)}, {"train": 30, "test": 20})
    assert (964 + 659) * 20 == 19_280 + 13_180 == 32_460


def test_archives_and_folders_give_equal_shards(tmp_path: Path) -> None:
    root = folders(tmp_path / "folders")
    for part in PARTS:
        zipped(root, tmp_path / "archives" / f"{part}.zip", part)
    zipped(root, tmp_path / "one.zip", prefix="omniglot/")
    for name in ("folders", "archives", "one.zip"):
        run(tmp_path / name, tmp_path / "out" / name)
    shards = Shards(tmp_path / "out" / "archives", verify=True)
    assert shards.manifest["published"] == "Omniglot"
    alphabets = {"Greek": 2, "Latin": 3, "Tibetan": 2}
    names = [f"{name}/character0{n}" for name, count in alphabets.items() for n in range(1, count + 1)]
    assert shards.class_names == names
    assert shards.splits.tolist() == ["train"] * 15 + ["test"] * 6
    assert shards.groups == ["Greek"] * 6 + ["Latin"] * 9 + ["Tibetan"] * 6
    assert shards.manifest["ingest"]["formats"] == {"PNG 1": 21}
    assert shards.sources[20] == "images_evaluation/Tibetan/character02/0007_03.png"
    assert shards.image(20).tobytes() == (root / shards.sources[20]).read_bytes(), "stored unchanged"
    expected = np.repeat(drawing(703)[..., None] * np.uint8(255), 3, axis=2)
    assert np.array_equal(decode(shards.image(20)), expected)
    for name in ("folders", "one.zip"):
        for file in (tmp_path / "out" / "archives").iterdir():
            assert (tmp_path / "out" / name / file.name).read_bytes() == file.read_bytes()


def test_reads_a_folder_and_an_archive(tmp_path: Path) -> None:
    root = folders(tmp_path / "raw")
    zipped(root, root / "images_evaluation.zip", "images_evaluation")
    shutil.rmtree(root / "images_evaluation")
    assert run(root, tmp_path / "out")["counts"]["test"] == {"images": 6, "classes": 2}


def test_ignores_desktop_files(tmp_path: Path) -> None:
    root = folders(tmp_path / "raw")
    (root / "images_background" / "Greek" / "character01" / "._0001_01.png").write_bytes(b"\0\5\x16\7")
    (root / "images_background" / ".DS_Store").write_bytes(b"1")
    assert run(root, tmp_path / "out")["counts"]["train"] == {"images": 15, "classes": 5}


@pytest.mark.parametrize("part", PARTS)
def test_refuses_a_missing_part(tmp_path: Path, part: str) -> None:
    root = folders(tmp_path / "raw")
    shutil.rmtree(root / part)
    expected = rf"(?s)contains neither {part}\.zip nor the folder {part}\..*brendenlake/omniglot"
    with pytest.raises(UserError, match=expected):
        run(root, tmp_path / "out")


def test_refuses_the_small_background_sets(tmp_path: Path) -> None:
    root = folders(tmp_path / "raw")
    (root / "images_background").rename(root / "images_background_small1")
    with pytest.raises(UserError, match=r"contains neither images_background\.zip nor"):
        run(root, tmp_path / "out")


def test_refuses_a_missing_character(tmp_path: Path) -> None:
    root = folders(tmp_path / "raw")
    shutil.rmtree(root / "images_background" / "Latin" / "character02")
    expected = r"is not Omniglot: found 12 train images of 4 classes.*expected 15 train images of 5 classes"
    with pytest.raises(UserError, match=expected):
        run(root, tmp_path / "out")


def test_refuses_a_drawing_in_the_folder_of_another_character(tmp_path: Path) -> None:
    root = folders(tmp_path / "raw")
    latin = root / "images_background" / "Latin"
    (latin / "character01" / "0003_01.png").rename(latin / "character02" / "0003_01.png")
    with pytest.raises(UserError, match=r"the character Latin/character0\d has [24] drawings, expected 3"):
        run(root, tmp_path / "out")


def test_refuses_an_alphabet_in_both_parts(tmp_path: Path) -> None:
    root = folders(tmp_path / "raw")
    (root / "images_evaluation" / "Tibetan").rename(root / "images_evaluation" / "Latin")
    for character in (1, 2):
        folder = root / "images_evaluation" / "Latin" / f"character0{character}"
        folder.rename(folder.with_name(f"character1{character}"))
    with pytest.raises(UserError, match="the alphabet Latin is in both parts"):
        run(root, tmp_path / "out")


def test_refuses_another_number_of_alphabets(tmp_path: Path) -> None:
    root = folders(tmp_path / "raw")
    background = root / "images_background"
    (background / "Cyrillic").mkdir()
    (background / "Latin" / "character03").rename(background / "Cyrillic" / "character01")
    with pytest.raises(UserError, match="found 3 and 1 alphabets"):
        run(root, tmp_path / "out")


def test_refuses_an_image_outside_the_folders_of_characters(tmp_path: Path) -> None:
    root = folders(tmp_path / "raw")
    (root / "images_background" / "Latin" / "overview.png").write_bytes(one_bit(drawing(0)))
    with pytest.raises(UserError, match=r"overview\.png is not in a folder of an alphabet and a character"):
        run(root, tmp_path / "out")
