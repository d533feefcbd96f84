"""The samples of Cifar Collage of GSP figure 4: which are drawn, the cells, the frame, and the file."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.ingest import cifars
from tools.docs.collage_samples import apart, draw, samples
from unseen.data.ingest.settings import CollageSource
from unseen.data.ingest.sources import cifar
from unseen.data.ingest.sources.collage import Collage, collection


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "LAYOUTS", cifars.SMALL)


@pytest.fixture
def source(tmp_path: Path) -> CollageSource:
    return CollageSource(path=str(cifars.packed(tmp_path / "raw", "cifar100")))


def test_samples_are_of_four_classes_of_each_split_and_the_cell_is_that_of_the_class_image(
    source: CollageSource, tmp_path: Path
) -> None:
    listed = collection(source, tmp_path)
    chosen = samples(listed.pictures)
    assert [picture.split for picture in chosen] == ["train"] * 4 + ["test"] * 4
    assert len({picture.class_name for picture in chosen}) == 8
    assert isinstance(listed.read, Collage)
    for picture in chosen:
        content = listed.read(picture.source)
        y, x = divmod(listed.read.cell(picture.source), 2)
        file, _, number = picture.source.partition("/")
        expected = cifars.planes(file, int(number)).transpose(1, 2, 0)
        np.testing.assert_array_equal(content[32 * y : 32 * y + 32, 32 * x : 32 * x + 32], expected)
        spaced = apart(content)
        np.testing.assert_array_equal(spaced[38 * y : 38 * y + 32, 38 * x : 38 * x + 32], expected)
        assert (spaced[32:38] == 255).all()
        assert (spaced[:, 32:38] == 255).all()


def test_writes_an_svg_file_with_equal_bytes(source: CollageSource, tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw(tmp_path / name, source)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert (tmp_path / "b.svg").read_text(encoding="utf-8") == text
    assert (tmp_path / "b.pdf").read_bytes() == (tmp_path / "a.pdf").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert text.count("<image") == 16
    for title in ("train", "test", "images of the cells", "picture"):
        assert f">{title}<" in text
