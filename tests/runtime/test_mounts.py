"""Directories that are mount points are replaced by their contents."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.photos import save_model, save_photos
from unseen.runtime import mounts
from unseen.runtime.files import atomic_directory, complete_directory, restore_directory

_NAMESPACE = ("unshare", "--map-root-user", "--mount")
_SCRIPT = """
import sys
from pathlib import Path
from unseen_search.catalog import Catalog, build
photos, catalog, model = map(Path, sys.argv[1:])
first = build(photos, catalog, model, processes=1)
(photos / first.paths[0]).unlink()
build(photos, catalog, processes=1)
assert len(Catalog(catalog)) == len(first) - 1
print(sorted(entry.name for entry in catalog.iterdir()))
"""


def replace(path: Path, content: str) -> None:
    with atomic_directory(path) as directory:
        (directory / content).mkdir()
        (directory / content / "file").write_text(content)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the rules of a mount point."""
    path, rename = tmp_path / "a volume", Path.replace
    path.mkdir()
    (path / "lost+found").mkdir()
    monkeypatch.setattr(mounts.os.path, "ismount", lambda other: Path(other) == path)

    def renamed(source: Path, target: Path) -> Path:
        if path in (source, Path(target)) or source.parent == tmp_path:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(source))
        return rename(source, target)

    monkeypatch.setattr(Path, "replace", renamed)
    return path


def test_the_contents_of_a_mount_point_are_replaced(mount: Path) -> None:
    assert mounts.is_free(mount)
    for content in ("old", "new"):
        replace(mount, content)
        assert sorted(entry.name for entry in mount.iterdir()) == ["lost+found", content]
        assert not mounts.is_free(mount)
    with pytest.raises(RuntimeError, match="stopped"), atomic_directory(mount) as directory:
        (directory / "half").touch()
        raise RuntimeError("stopped")
    assert sorted(entry.name for entry in mount.iterdir()) == ["lost+found", "new"]
    assert [entry.name for entry in mount.parent.iterdir()] == [mount.name], "nothing lies beside it"


def test_a_kill_during_the_exchange_leaves_a_complete_directory(
    mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each deletion and rename is the last one before the kill, in turn."""
    replace(mount, "old")
    calls = 0

    class KilledError(BaseException):
        pass

    def limited(call: object, limit: int) -> object:
        def run(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            if calls > limit:
                raise KilledError
            return call(*arguments)

        return run

    remove, rename = shutil.rmtree, Path.replace
    for limit in range(1, 3):
        calls = 0
        with monkeypatch.context() as patch:
            patch.setattr(mounts.shutil, "rmtree", limited(remove, limit))
            patch.setattr(Path, "replace", limited(rename, limit))
            (mount / "new").mkdir()
            (mount / "new" / "file").touch()
            (mount / "new").rename(mount / mounts._NEW)
            (mount / mounts._NEW / "moved").mkdir()
            with pytest.raises(KilledError):
                mounts.complete_exchange(mount)
        assert (complete_directory(mount) / "moved").exists() or (mount / mounts._MOVING / "moved").exists()
        restore_directory(mount)
        assert sorted(entry.name for entry in mount.iterdir()) == ["file", "lost+found", "moved"]


def test_a_catalog_is_built_and_updated_in_a_bind_mount(tmp_path: Path) -> None:
    if subprocess.run([*_NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no permission to create a mount namespace")
    catalog, volume = tmp_path / "a catalog", tmp_path / "volume"
    for directory in (catalog, volume):
        directory.mkdir()
    (volume / "lost+found").mkdir()
    photos, model = save_photos(tmp_path / "photos"), save_model(tmp_path / "model", 1)
    arguments = [sys.executable, "-c", _SCRIPT, str(photos), str(catalog), str(model)]
    bind = f"mount --bind '{volume}' '{catalog}' && exec \"$@\""
    result = subprocess.run(
        [*_NAMESPACE, "sh", "-c", bind, "sh", *arguments], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert (
        result.stdout
        == "['catalog.json', 'index.faiss', 'lost+found', 'model', 'pictures.parquet', 'rivals.parquet']\n"
    )
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a catalog", "model", "photos", "volume"]
