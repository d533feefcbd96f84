"""A file is compared with its sha256 once, and again after each change."""

import os
from pathlib import Path

import pytest

from pipeline.data import verified
from pipeline.data.verified import first_difference, record_of
from pipeline.runtime.digest import sha256_of


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "set"
    directory.mkdir()
    for name in ("a", "b"):
        (directory / name).write_bytes(name.encode() * 100)
        os.utime(directory / name, (1e9, 1e9))
    return directory


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    names: list[str] = []
    monkeypatch.setattr(verified, "sha256_of", lambda path: (names.append(path.name), sha256_of(path))[1])
    return names


def hashes(directory: Path) -> dict[str, str]:
    return {name: sha256_of(directory / name) for name in ("a", "b")}


def test_unchanged_files_are_read_once(directory: Path, read: list[str]) -> None:
    expected = hashes(directory)
    for _ in range(3):
        assert first_difference(directory, expected, True) is None
    assert read == ["a", "b"]


def test_a_changed_file_is_read_again(directory: Path, read: list[str]) -> None:
    """Even if its size and its time of modification are those of before."""
    expected = hashes(directory)
    first_difference(directory, expected, True)
    read.clear()
    (directory / "b").write_bytes(b"c" * 100)
    os.utime(directory / "b", (1e9, 1e9))
    assert first_difference(directory, expected, True) == (directory / "b", sha256_of(directory / "b"))
    assert read == ["b"]


def test_another_expected_hash_is_a_difference(directory: Path) -> None:
    expected = hashes(directory)
    first_difference(directory, expected, True)
    path, digest = first_difference(directory, expected | {"a": "0" * 64}, True) or (Path(), "")
    assert (path.name, digest) == ("a", expected["a"])


def test_a_file_that_was_just_written_is_not_recorded(directory: Path, read: list[str]) -> None:
    (directory / "a").write_bytes(b"new")
    expected = hashes(directory)
    first_difference(directory, expected, True)
    first_difference(directory, expected, True)
    assert read == ["a", "b", "a"]


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff{"])
def test_without_a_valid_record_all_files_are_read(directory: Path, read: list[str], content: bytes) -> None:
    expected = hashes(directory)
    record_of(directory).write_bytes(content)
    assert first_difference(directory, expected, True) is None
    assert read == ["a", "b"]


def test_without_memory_all_files_are_read_and_nothing_is_written(directory: Path, read: list[str]) -> None:
    expected = hashes(directory)
    first_difference(directory, expected, True)
    read.clear()
    record_of(directory).unlink()
    assert first_difference(directory, expected, False) is None
    assert read == ["a", "b"]
    assert not record_of(directory).exists()
