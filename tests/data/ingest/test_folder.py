"""A user's folder: class and split of the images, and the contents of a CSV."""

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.data.ingest.pictures import encode, folder, pack, pixels
from unseen.data.ingest.collection import Collection
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import FolderSource, IngestSettings
from unseen.data.ingest.sources.folder import collection
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


def listing(root: Path, table: str | None = None, **source: Any) -> Collection:
    if table is not None:
        (root / "labels.csv").write_text(table)
        source["labels"] = "labels.csv"
    return collection(FolderSource(path=str(root), **source))


def run(root: Path, table: str, output: Path) -> None:
    """Ingests a folder with the CSV `table`."""
    (root / "labels.csv").write_text(table)
    ingest(FolderSource(path=str(root), labels="labels.csv"), IngestSettings(), output, "mine", 1)


class TestDirectories:
    def test_class_is_the_whole_path_of_the_directory(self, tmp_path: Path) -> None:
        for name in ("birds/red", "birds/blue", "fish/red", "fish"):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / name / "1.JPG").write_bytes(b"")
        (tmp_path / "empty").mkdir()
        pictures = listing(tmp_path).pictures
        class_names = ["birds/blue", "birds/red", "fish", "fish/red"]
        assert {p.source: p.class_name for p in pictures} == {f"{name}/1.JPG": name for name in class_names}
        assert Counter(p.split for p in pictures) == {"train": 2, "test": 2}
        assert all(p.is_query and p.is_gallery for p in pictures)

    def test_refuses_an_image_outside_the_class_directories(self, tmp_path: Path) -> None:
        folder(tmp_path)
        (tmp_path / "logo.png").write_bytes(b"")
        with pytest.raises(UserError, match=r"logo\.png is not in a class directory"):
            listing(tmp_path)

    def test_follows_links_once(self, tmp_path: Path) -> None:
        folder(tmp_path / "real", classes=2, images=1)
        (tmp_path / "set").mkdir()
        (tmp_path / "set" / "a").symlink_to(tmp_path / "real" / "c0")
        (tmp_path / "set" / "b").mkdir()
        (tmp_path / "set" / "b" / "1.jpg").symlink_to(tmp_path / "real" / "c1" / "0.jpg")
        (tmp_path / "set" / "b" / "loop").symlink_to(tmp_path / "set")
        assert sorted(p.source for p in listing(tmp_path / "set").pictures) == ["a/0.jpg", "b/1.jpg"]

    def test_refuses_a_file_name_that_is_not_utf_8(self, tmp_path: Path) -> None:
        folder(tmp_path)
        with open(os.fsencode(tmp_path / "c0") + b"/\xff.jpg", "wb"):
            pass
        with pytest.raises(UserError, match="not valid UTF-8"):
            listing(tmp_path)

    def test_names_folders_that_cannot_be_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder(tmp_path)
        (tmp_path / "c1" / "sub").mkdir()
        for name in (".hidden", "lost+found"):
            (tmp_path / name).mkdir()
        make_unreadable(monkeypatch, tmp_path, ".hidden", "lost+found")
        assert len(listing(tmp_path).pictures) == 12, "hidden folders contain no image of the set"
        make_unreadable(monkeypatch, tmp_path, ".hidden", "c1/sub", "c2")
        expected = r"^2 folders cannot be read: .*/c1/sub \(Permission denied\), .*/c2 \(Perm.*\n.*chmod"
        with pytest.raises(UserError, match=expected):
            listing(tmp_path)
        make_unreadable(monkeypatch, tmp_path, "")
        with pytest.raises(UserError, match=r"^1 folder cannot be read: .*Permission denied"):
            listing(tmp_path)

    def test_lists_images_in_formats_that_are_not_read(self, tmp_path: Path) -> None:
        folder(tmp_path)
        assert listing(tmp_path).facts == {"other_files": {}}
        for name in ("c1/b.JXL", "c1/a.psd", "c2/c.jxl", "c2/notes.txt", "c2/._d.jxl"):
            (tmp_path / name).write_bytes(b"")
        facts = listing(tmp_path).facts
        assert facts["unread_images"] == ["c1/a.psd", "c1/b.JXL", "c2/c.jxl"]
        assert facts["other_files"] == {".txt": 1}

    def test_lists_files_without_the_suffix_of_an_image(self, tmp_path: Path) -> None:
        folder(tmp_path)
        (tmp_path / "lost").mkdir()
        names = ["lost/0.jpg_large", "lost/1", "lost/2", "lost/3", "lost/4", "lost/5"]
        for name in [*names, "lost/.hidden"]:
            (tmp_path / name).write_bytes(b"")
        facts = listing(tmp_path).facts
        assert facts["other_files"] == {".jpg_large": 1, "": 5}
        assert facts["other_file_names"] == names[:5]

    def test_lists_folders_that_a_link_names_again(self, tmp_path: Path) -> None:
        folder(tmp_path)
        (tmp_path / "c4").symlink_to("c0")
        (tmp_path / "c1" / "loop").symlink_to(tmp_path)
        (tmp_path / ".cache").symlink_to("c0")
        result = listing(tmp_path)
        assert result.facts["repeated_folders"] == ["c1/loop = .", "c4 = c0"]
        assert {picture.class_name for picture in result.pictures} == {"c0", "c1", "c2", "c3"}

    def test_omits_pipes_and_devices_and_lists_them(self, tmp_path: Path) -> None:
        folder(tmp_path)
        os.mkfifo(tmp_path / "c0" / "pipe.jpg")
        (tmp_path / "c1" / "endless.jpg").symlink_to("/dev/zero")
        (tmp_path / "c1" / "missing.jpg").symlink_to("nowhere")
        result = listing(tmp_path)
        assert result.facts["irregular_files"] == ["c0/pipe.jpg", "c1/endless.jpg"]
        sources = {picture.source for picture in result.pictures}
        assert not sources & {"c0/pipe.jpg", "c1/endless.jpg"}
        assert "c1/missing.jpg" in sources, "its reading reports the reason"
        with pytest.raises(ValueError, match="named pipe"):
            result.read("c0/pipe.jpg")

    def test_leaves_out_folders_of_desktops_and_storage_systems_and_lists_them(self, tmp_path: Path) -> None:
        folder(tmp_path)
        names = ["c0/@eaDir/0.jpg/THUMB.jpg", "#recycle/c0/0.jpg", "$RECYCLE.BIN/x/0.jpg", "lost+found/1.png"]
        names += [
            "@Recycle/1.jpg",
            ".Trash-1000/files/1.jpg",
            "c1/__MACOSX/1.jpg",
            "c1/._0.jpg",
            "c1/Thumbs.db",
        ]
        for name in [*names, "System Volume Information/notes.txt"]:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"")
        result = listing(tmp_path)
        assert {picture.class_name for picture in result.pictures} == {"c0", "c1", "c2", "c3"}
        left_out = [
            "#recycle",
            "$RECYCLE.BIN",
            ".Trash-1000",
            "@Recycle",
            "c0/@eaDir",
            "c1/__MACOSX",
            "lost+found",
        ]
        assert result.facts["system_folders"] == left_out

    def test_names_labels_that_look_equal_and_refuses_a_class_with_two_folders(self, tmp_path: Path) -> None:
        for name in ("Red", "red", "caf\u00e9", "cafe\u0301", "blue"):
            (tmp_path / name).mkdir()
            (tmp_path / name / f"{len(name)}.jpg").write_bytes(b"")
        result = listing(tmp_path)
        assert {picture.class_name for picture in result.pictures} == {"Red", "red", "café", "blue"}
        assert "'Red' and 'red'" in result.facts["similar_labels"]
        for split in ("train", "test"):
            (tmp_path / split / "blue").mkdir(parents=True)
            (tmp_path / split / "blue" / "1.jpg").write_bytes(b"")
        with pytest.raises(UserError, match=r"blue and test/blue are two folders of one class"):
            listing(tmp_path)

    def test_refuses_a_folder_with_only_formats_that_are_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "c0").mkdir()
        for number in range(7):
            (tmp_path / "c0" / f"{number}.jxl").write_bytes(b"")
        expected = (
            r"contains no image that can be read\. "
            r"7 images have a format that is not read: c0/0\.jxl, .*4\.jxl and 2 more\.\n"
        )
        with pytest.raises(UserError, match=expected):
            listing(tmp_path)


def make_unreadable(monkeypatch: pytest.MonkeyPatch, root: Path, *names: str) -> None:
    """Makes the folders `names` unreadable, also for an administrator."""
    monkeypatch.undo()
    scandir, unreadable = os.scandir, {root / name for name in names}

    def scan(path: str | Path) -> object:
        if Path(path) in unreadable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)


HEAD = "path,label,split,is_query,is_gallery\n"


class TestCsv:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return folder(tmp_path / "raw", classes=4, images=2)

    def test_divides_the_classes_of_a_csv_without_splits(self, root: Path) -> None:
        table = "\ufefflabel,path,weight\n" + "".join(
            f'"kind, {c % 2}",c{c}/{i}.jpg,3\n' for c in range(4) for i in range(2)
        )
        pictures = listing(root, table, order="name").pictures
        assert {(p.class_name, p.split) for p in pictures} == {("kind, 0", "train"), ("kind, 1", "test")}
        sources = sorted(p.source for p in pictures if p.class_name == "kind, 1")
        assert sources == ["c1/0.jpg", "c1/1.jpg", "c3/0.jpg", "c3/1.jpg"]

    def test_writes_splits_queries_and_gallery_to_the_index(self, root: Path, tmp_path: Path) -> None:
        rows = ["c0/0.jpg,a,train,,", "c0/1.jpg,a,train,,", "c1/0.jpg,b,train,,", "c1/1.jpg,b,train,yes,no"]
        rows += ["c2/0.jpg,c,test,1,0", "c2/1.jpg,c,test,False,TRUE"]
        rows += ["c3/0.jpg,d,test,yes,yes", "c3/1.jpg,d,test,no,yes"]
        run(root, HEAD + "\n".join(rows) + "\n", tmp_path / "out")
        shards = Shards(tmp_path / "out")
        assert shards.splits.tolist() == ["train"] * 4 + ["test"] * 4
        assert shards.is_query.tolist() == [True, True, True, True, True, False, True, False]
        assert shards.is_gallery.tolist() == [True, True, True, False, False, True, True, True]
        assert pq.read_table(tmp_path / "out" / "index.parquet")["class_name"].to_pylist() == list("aabbccdd")

    def test_refuses_queries_without_a_match(self, root: Path, tmp_path: Path) -> None:
        rows = ["c0/0.jpg,a,train,,", "c0/1.jpg,a,train,,", "c1/0.jpg,b,train,,"]
        rows += ["c2/0.jpg,c,test,yes,no", "c2/1.jpg,c,test,yes,no", "c3/0.jpg,d,test,yes,yes"]
        with pytest.raises(UserError, match="no test query has another image of its class in the gallery"):
            run(root, HEAD + "\n".join(rows) + "\n", tmp_path / "out")

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ("path,kind\nc0/0.jpg,a\n", r"labels\.csv has no column `label`; its columns: path, kind\."),
            ("", r"labels\.csv has no column `path`; its columns: none\."),
            ("path,label,splits\nc0/0.jpg,a,train\n", r"unknown column `splits`.*\n.*Did you mean split\?"),
            ("path,label\nc0/0.jpg,a\nc0/9.jpg,a\n", r"labels\.csv:3: .*raw contains no file 'c0/9\.jpg'"),
            ("path,label\n../outside.jpg,a\n", r"labels\.csv:2: .*raw contains no file '\.\./outside\.jpg'"),
            ("path,label,label\nc0/0.jpg,a,b\n", r"labels\.csv has 2 columns `label`"),
            ("path,label\nc0/0.jpg,a\0b\n", r"labels\.csv:2: a value contains the character NUL"),
            ("path,label\nc0/0.jpg,a\nc0/0.jpg,b\n", r"labels\.csv:3: c0/0\.jpg is listed twice"),
            ("path,label\nc0/0.jpg,\n", r"labels\.csv:2: no label"),
            ("path,label\nc0/0.jpg,a,b\n", r"labels\.csv:2: more values than the 2 columns"),
            (
                "path,label,split\nc0/0.jpg,a,validation\n",
                r"csv:2: unknown split 'validation'\.\n.*Write train: ",
            ),
            (
                "path,label,split\nc0/0.jpg,a,val\n",
                r"csv:2: unknown split 'val'\.\n.*Write train: .*train, test",
            ),
            (
                "path,label,split\nc0/0.jpg,a,train\nc1/0.jpg,a,test\n",
                r"class 'a' is in both splits: c0/0\.jpg is train, c1/0\.jpg is test",
            ),
            (
                "path,label,split,is_query\nc0/0.jpg,a,test,perhaps\n",
                r"labels\.csv:2: unknown is_query 'perhaps'",
            ),
            ("path,label,split,is_query\nc0/0.jpg,a,test,\n", r"labels\.csv:2: unknown is_query ''"),
        ],
    )
    def test_names_an_invalid_column_or_line(self, root: Path, table: str, message: str) -> None:
        with pytest.raises(UserError, match=message):
            listing(root, table)

    def test_refuses_a_missing_csv(self, root: Path) -> None:
        (root / "other.csv").write_text("")
        with pytest.raises(UserError, match=r"names\.csv does not exist; CSV files there: other\.csv"):
            listing(root, labels="names.csv")

    def test_refuses_a_damaged_csv_within_an_archive(self, root: Path, tmp_path: Path) -> None:
        (root / "labels.csv").write_text("path,label\nc0/0.jpg,a\n")
        path = pack(root, tmp_path / "raw.zip")
        path.write_bytes(path.read_bytes().replace(b"c0/0.jpg,a", b"c0/0.jpg,b"))
        source = FolderSource(path=str(path), labels="labels.csv")
        with pytest.raises(UserError, match=r"labels\.csv cannot be read: damaged within .*\n.*Pack or copy"):
            collection(source)

    def test_refuses_a_csv_that_is_not_utf_8(self, root: Path) -> None:
        (root / "labels.csv").write_bytes(b"path,label\nc0/0.jpg,\xff\n")
        with pytest.raises(UserError, match=r"labels\.csv:2 is not UTF-8: .* at byte 20"):
            listing(root, labels="labels.csv")

    def test_refuses_a_csv_without_rows(self, root: Path, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"labels\.csv has no line"):
            run(root, "path,label\n", tmp_path / "out")

    def test_accepts_images_with_any_suffix(self, root: Path) -> None:
        (root / "c0" / "scan.dat").write_bytes(encode(pixels(1)))
        result = listing(root, "path,label\nc0/scan.dat,a\nc1/0.jpg,b\n")
        assert sorted(p.source for p in result.pictures) == ["c0/scan.dat", "c1/0.jpg"]
        images = [f"c{c}/{i}.jpg" for c in range(4) for i in range(2)]
        assert result.facts == {
            "other_files": {},
            "unlisted_images": {"count": 7, "first": [name for name in images if name != "c1/0.jpg"][:5]},
        }

    def test_lists_images_and_files_that_a_csv_omits(self, root: Path) -> None:
        for name in ("c3/x.jp2", "c3/notes.txt"):
            (root / name).write_bytes(b"")
        table = "path,label\n" + "".join(f"c{c}/{i}.jpg,{c}\n" for c in range(4) for i in range(2))
        assert listing(root, table).facts == {
            "other_files": {".txt": 1},
            "other_file_names": ["c3/notes.txt"],
            "unlisted_images": {"count": 1, "first": ["c3/x.jp2"]},
        }
