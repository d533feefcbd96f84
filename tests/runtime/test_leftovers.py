"""Files of killed processes are removed; files in use are not."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file, remove_partial_files
from unseen.runtime.leftovers import (
    OWNER,
    is_abandoned,
    owned,
    remove_leftover_directories,
    remove_leftovers,
)
from unseen.runtime.lock import exclusive
from unseen.runtime.stage import ROOT

HOLDER = """
import sys
from contextlib import ExitStack
from pathlib import Path
from unseen.data.ingest.files.tarball import scratch_directory
from unseen.runtime.files import atomic_directory, atomic_file
from unseen.runtime.leftovers import owned
root, temporary = map(Path, sys.argv[1:])
with ExitStack() as stack:
    stack.enter_context(atomic_file(root / "data/metrics/parts/ms/0.json"))
    for directory in (root / "data/state/ray/parts-ms-0-x", temporary / "unseen-x"):
        directory.mkdir(parents=True)
        (directory / "log").touch()
        stack.enter_context(owned(directory))
    stack.enter_context(scratch_directory(root / "data/shards/parts"))
    for output in ("data/resolved", "data/shards/parts", "data/models/parts/ms/0"):
        (stack.enter_context(atomic_directory(root / output)) / "file").touch()
    print("holds", flush=True)
    input()
"""


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a partial file, partial directories, an unpacked archive, a directory of workers
    and one of a cluster."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "tmp"))
    command = [sys.executable, "-c", HOLDER, str(tmp_path), str(tmp_path / "tmp")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


def aged(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (time.time() - 60, time.time() - 60))


@pytest.mark.slow
def test_removes_what_a_killed_process_held(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    metrics = tmp_path / "data/metrics/parts/ms"
    (metrics / "1.json").touch()
    (partial,) = metrics.glob(".0.json.*.partial")
    directories = [tmp_path / "data/state/ray/parts-ms-0-x", tmp_path / "tmp/unseen-x"]
    owners = [directory / OWNER for directory in directories]
    outputs = [
        path
        for pattern in (".resolved.*.partial", "shards/.parts.*", "models/parts/ms/.0.*.partial")
        for path in (tmp_path / "data").glob(pattern)
    ]
    assert len(outputs) == 4
    raw = tmp_path / "data/raw/parts/.x.partial"
    raw.mkdir(parents=True)
    aged(metrics / "1.json", partial, raw, *owners, *outputs)
    remove_leftovers(tmp_path)
    assert partial.exists(), "the process still holds it"
    assert all(path.exists() for path in outputs)
    assert all((directory / "log").exists() for directory in directories)
    holder.kill()
    holder.wait()
    remove_leftovers(tmp_path)
    assert list(metrics.iterdir()) == [metrics / "1.json"]
    assert not any(directory.exists() for directory in [*directories, *outputs])
    assert raw.exists(), "published files are not searched"


def test_a_file_of_the_last_seconds_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "new"
    path.touch()
    assert not is_abandoned(path), "its process may not have locked it yet"
    aged(path)
    assert is_abandoned(path)
    assert not is_abandoned(tmp_path / "absent")


def test_owns_a_directory_only_during_the_block(tmp_path: Path) -> None:
    owner = tmp_path / OWNER
    with owned(tmp_path):
        aged(owner)
        assert not is_abandoned(owner)
        with pytest.raises(FileExistsError), owned(tmp_path):
            pass
    assert is_abandoned(owner)


def open_files(path: Path) -> int:
    """The descriptors of this process for a file."""
    return sum(os.path.realpath(each) == str(path.resolve()) for each in Path("/proc/self/fd").iterdir())


def test_a_refused_lock_leaves_no_open_file(tmp_path: Path) -> None:
    with exclusive(tmp_path / "lock", "builds"):
        with pytest.raises(UserError, match=r"Another process \(\d+\) builds"):
            exclusive(tmp_path / "lock", "builds").__enter__()
        assert open_files(tmp_path / "lock") == 1, "of the holder"


def test_a_file_system_without_locks_keeps_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written, and none is removed, because each may be in use."""

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    partial = tmp_path / ".text.0123abcd.partial"
    partial.touch()
    with atomic_file(tmp_path / "text") as path:
        path.write_text("new")
    remove_partial_files(tmp_path)
    assert (tmp_path / "text").read_text() == "new"
    assert partial.exists()
    with owned(tmp_path):
        aged(tmp_path / OWNER)
    assert not is_abandoned(tmp_path / OWNER)
    with pytest.raises(UserError, match=r"(?s)lock cannot be locked: No locks available.*with locks"):
        exclusive(tmp_path / "lock", "builds").__enter__()
    assert open_files(tmp_path / "lock") == 0


def test_what_another_user_made_neither_blocks_nor_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary directory belongs to all users. The opening of a named pipe waits for a writer."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    for name in ("pipe", "link", "other"):
        (tmp_path / f"unseen-{name}").mkdir()
    pipe, link, other = (tmp_path / f"unseen-{name}" / OWNER for name in ("pipe", "link", "other"))
    os.mkfifo(pipe)
    (tmp_path / "private").touch()
    link.symlink_to(tmp_path / "private")
    other.touch()
    aged(pipe, tmp_path / "private", other)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)  # the files are those of another user
    remove_leftover_directories(tmp_path / "project")
    assert all(path.parent.is_dir() for path in (pipe, link, other))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    remove_leftover_directories(tmp_path / "project")
    assert pipe.parent.is_dir()
    assert link.parent.is_dir()
    assert not other.parent.exists()


@pytest.mark.slow
def test_dvc_and_git_ignore_what_a_killed_stage_leaves() -> None:
    """data/shards, data/metrics and others are inputs of stage report; metrics and histories are in git."""
    name = f".parts.{'0' * 32}"
    ignored = [f"data/shards/{name}.partial/index.parquet", "data/shards/.parts.k7y3rafj.scratch/x.tar"]
    ignored += [f"data/metrics/parts/ms/{name}.partial", "data/ensemble/parts/.ms.replaced/x"]
    paths = [*ignored, "data/shards/parts/index.parquet"]
    command = [sys.executable, "-m", "dvc", "check-ignore", *paths]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.stdout.split() == ignored, process.stderr
    tracked = ["data/metrics/parts/ms/0.json", "data/history/parts/ms/0.csv"]
    left = [str(path.with_name(f".{path.name}.{'0' * 32}.partial")) for path in map(Path, tracked)]
    left += ["data/metrics/parts/.ms.replaced/0.json", "data/history/.x.scratch/y"]
    command = ["git", "check-ignore", "--no-index", *left, *tracked]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.stdout.split() == left, process.stderr


def test_a_stage_removes_the_directories_of_other_killed_stages(tmp_path: Path) -> None:
    partial = tmp_path / f"data/shards/.parts.{'0' * 32}.partial"
    partial.mkdir(parents=True)
    remove_leftover_directories(tmp_path)
    assert partial.exists(), "its process may not have locked it yet"
    aged(partial)
    remove_leftover_directories(tmp_path)
    assert not partial.exists()
