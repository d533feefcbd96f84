"""The reader of names and labels that a person wrote, on the kinds that public reports name."""

from pathlib import Path

import pytest

from unseen.data.labels import alike, by_file, csv_lines, labels_in, require_one_folder
from unseen.runtime.errors import UserError

PATHS = ["a/1.jpg", "a/2.jpg", "b/schön.JPG"]
ROWS = [("a/1.jpg", "red"), ("b/schön.JPG", "grün, hell")]
TABLE = 'path,label\na/1.jpg,red\nb/schön.JPG,"grün, hell"\n'


def labels(content: bytes, root: Path | None = None) -> list[tuple[str | None, str]]:
    lines = csv_lines(content, "t.csv", ("path", "label"), ("split",))
    return [(name, line.values["label"]) for line, name in by_file(lines, PATHS, root)]


@pytest.mark.parametrize(
    "content",
    [
        TABLE.encode(),
        TABLE.encode("utf-8-sig"),
        TABLE.encode("utf-16"),
        b"\xfe\xff" + TABLE.encode("utf-16-be"),
        b"# coding: cp1252\n" + TABLE.encode("cp1252"),
        b'\xef\xbb\xbf"# coding: utf-8",\r\n' + TABLE.encode(),
        ("sep=,\n" + TABLE).encode(),
        b"#coding=cp1252\r\n"
        + ("sep=;\r\n" + TABLE.replace('"', "").replace(",", ";", 2))
        .encode("cp1252")
        .replace(b"JPG,", b"JPG;"),
        TABLE.replace('"', "").replace(",", "\t", 2).replace("JPG,", "JPG\t").encode("utf-16"),
        TABLE.replace(",", "|", 2).replace("JPG,", "JPG|").encode(),
        TABLE.replace("\n", "\r\n").encode(),
        TABLE.replace("\n", "\r").encode(),
        TABLE.replace("path,label", ' Path , "LABEL"').encode(),
        TABLE.replace("label", "label,,note").replace("red", "red,,").encode(),
        (TABLE + "\n,,\n , \n").encode(),
        TABLE.replace("red", " \u00a0red\u2003").encode(),
        TABLE.replace('"grün', ' "gru\u0308n').encode(),
        TABLE.replace("schön", "scho\u0308n").encode(),
        TABLE.replace("a/1", ".\\a\\1").encode(),
        TABLE.replace("a/1.jpg", "A/1.JPG").encode(),
        TABLE.replace("a/1.jpg", "/photos/set/a/1.jpg").encode(),
    ],
)
def test_reads_the_same_table_in_every_form(content: bytes) -> None:
    assert labels(content, Path("/photos/set")) == ROWS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TABLE.encode("cp1252"), r"t\.csv:3 is not UTF-8: invalid .* byte 28\.\n.*# coding: cp1252"),
        (b"# coding: ascii\n" + TABLE.encode(), r"t\.csv:4 is not ascii"),
        (b"# coding: klingon\n" + TABLE.encode(), r"t\.csv:1: unknown encoding klingon"),
        (b"# coding: zip\n" + TABLE.encode(), r"t\.csv:1: unknown encoding zip"),
        (TABLE.encode("utf-16")[:-1], r"t\.csv:\d is not UTF-16: truncated"),
        ("path,label\n".encode("utf-16-le"), r"t\.csv has no column `path`"),
        (b"path,label\n", r"t\.csv has no line below the names"),
        (b"path;label\na/1.jpg,red\n", r"t\.csv:2: no label"),
        (b"path,label\n\na/1.jpg,Shoes, red\n", r"t\.csv:3: more values than the 2 columns"),
        (b'path,label\na/1.jpg,"red\na/2.jpg,blue\n', r"t\.csv:2: unexpected end of data"),
        (b'path,label\na/1.jpg,"24 inch" TV\n', r"t\.csv:2: ',' expected after"),
        (b'# coding: utf-8\nsep=,\npath,label\n"a/1.jpg","x\ny"\na/2.jpg,\n', r"t\.csv:6: no label"),
        (b"path,label\na/1.jpg,red\nA/1.jpg,blue\n", r"t\.csv:3: A/1\.jpg is listed twice"),
        (b"path,label,Splits\na/1.jpg,red,train\n", "unknown column `splits`.*\n.*Did you mean split"),
    ],
)
def test_names_the_line_that_cannot_be_read(content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        labels(content)


def test_a_path_in_other_capitals_means_one_file_or_none() -> None:
    lines = csv_lines(b"path,label\nA.JPG,x\n", "t.csv", ("path", "label"))
    assert [name for _, name in by_file(lines, ["a.jpg", "a.JPG"])] == [None]


def test_a_text_file_has_one_label_a_line() -> None:
    content = "red\nlight\u2028blue\x0c2\r\n cafe\u0301 \n\n\n"
    assert labels_in(content.encode("utf-16"), "l.txt") == ["red", "light\u2028blue\x0c2", "café"]
    with pytest.raises(UserError, match=r"l\.txt:2: no label"):
        labels_in(b"red\n \nblue\n", "l.txt")
    assert labels_in(b"", "l.txt") == []


def test_names_labels_that_look_equal() -> None:
    assert alike(["red", "blue", "red"]) is None
    sentence = alike(["red", "Red", "r\u200bed", "light  blue", "light\u00a0blue", "ﬁg", "fig", "green"])
    assert sentence is not None
    for group in ("'Red' and 'red' and 'r\\u200bed'", "'light  blue' and 'light\\xa0blue'", "'fig' and 'ﬁg'"):
        assert group in sentence
    assert "green" not in sentence


@pytest.mark.parametrize(
    ("folders", "named"),
    [
        (["train/c0", "test/c0"], "test/c0 and train/c0"),
        (["set/Train/c0", "set/val/c0"], "set/Train/c0 and set/val/c0"),
        (["c0/train", "c0/test"], "c0/test and c0/train"),
        (["c0", "c0/mask"], "c0 and c0/mask"),
        (["images/c0", "masks/c0"], "images/c0 and masks/c0"),
    ],
)
def test_refuses_a_class_with_two_folders(folders: list[str], named: str) -> None:
    with pytest.raises(UserError, match=f"^photos: {named} are two folders of one class"):
        require_one_folder([*folders, "other"], "photos")


def test_accepts_folders_of_several_classes() -> None:
    require_one_folder(["birds/red", "fish/red", "train", "test", "train/c0", "test/c1"], "photos")
