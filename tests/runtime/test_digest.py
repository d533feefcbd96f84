"""The sha256 of a file equals published test vectors (FIPS 180-2, appendix B)."""

from pathlib import Path

import pytest

from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import DIGESTS, require_digests

VECTORS = {
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"a" * 1_000_000: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
}


@pytest.mark.parametrize("content", VECTORS, ids=len)
def test_published_vectors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert sha256_of(tmp_path / "file") == VECTORS[content]


@pytest.mark.parametrize("content", [None, "[", "5", '{"b": '])
def test_missing_or_damaged_digests_are_an_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / DIGESTS).write_text(content)
    with pytest.raises(UserError, match=rf"{DIGESTS} is missing or damaged\.\n.*Run it again"):
        require_digests(tmp_path, "Run it again.")
    require_digests(tmp_path / "nowhere", "Its reader names it.")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sha256_of(tmp_path / "none")
