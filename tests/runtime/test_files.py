"""Files are written completely or not at all."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from unseen.runtime.errors import UserError
from unseen.runtime.files import (
    atomic_directory,
    atomic_file,
    complete_directory,
    regular,
    remove_partial_files,
    require_writable,
    restore_directory,
    system_problem,
    unreadable_is_an_error,
    write_json,
)


def test_a_file_is_replaced_only_by_a_complete_one(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "value.json"
    write_json(target, {"b": 1, "a": 0.5})
    assert target.read_text() == '{\n  "a": 0.5,\n  "b": 1\n}\n'
    with pytest.raises(RuntimeError, match="stopped"), atomic_file(target) as aside:
        aside.write_text("half")
        raise RuntimeError("stopped")
    assert target.read_text().startswith('{\n  "a"')
    assert sorted(p.name for p in target.parent.iterdir()) == ["value.json"]


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls of fsync and rename, each with the name of its file."""
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        calls.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        calls.append(("rename", path.name))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    return calls


def test_a_file_is_synced_before_it_is_renamed(tmp_path: Path, order: list[tuple[str, str]]) -> None:
    with atomic_file(tmp_path / "x") as aside:
        aside.write_text("1")
    assert order == [("sync", aside.name), ("rename", aside.name), ("sync", tmp_path.name)]


def test_a_directory_is_synced_before_it_is_renamed(tmp_path: Path, order: list[tuple[str, str]]) -> None:
    with atomic_directory(tmp_path / "out") as aside:
        (aside / "deep").mkdir()
        (aside / "deep" / "file").write_text("1")
    assert order == [
        ("sync", "deep"),
        ("sync", "file"),
        ("sync", aside.name),
        ("rename", aside.name),
        ("sync", tmp_path.name),
    ]


def test_refuses_nan_in_a_json_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nan"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_replaced_only_by_a_complete_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with atomic_directory(target) as aside:
        (aside / "old").write_text("1")
    with atomic_directory(target) as aside:
        (aside / "new").write_text("2")
    assert [p.name for p in target.iterdir()] == ["new"]
    with pytest.raises(RuntimeError, match="stopped"), atomic_directory(target) as aside:
        (aside / "other").write_text("3")
        raise RuntimeError("stopped")
    assert [p.name for p in target.iterdir()] == ["new"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_removes_the_files_of_a_killed_process(tmp_path: Path) -> None:
    for name in (".out.x1.partial", ".out.v2.x1.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("1")
    with atomic_directory(tmp_path / "out") as aside:
        (aside / "whole").write_text("2")
    assert {p.name for p in tmp_path.iterdir()} == {"out", ".out.v2.x1.partial"}, (
        "the second directory belongs to out.v2"
    )


# Replaces the directory and is killed before or after the n-th rename or deletion.
KILLED = """
import os, shutil, sys
from pathlib import Path
from unseen.runtime.files import atomic_directory

target, number, before = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "before"
calls = 0

def fatal(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if before and calls == number:
            os._exit(9)
        result = function(*arguments, **options)
        if not before and calls == number:
            os._exit(9)
        return result
    return call

Path.replace, shutil.rmtree = fatal(Path.replace), fatal(shutil.rmtree)
with atomic_directory(target) as partial:
    (partial / "a").write_text("new")
    (partial / "b").write_text("new")
"""


def kill(target: Path, number: int, moment: str) -> None:
    command = [sys.executable, "-c", KILLED, str(target), str(number), moment]
    assert subprocess.run(command, cwd=Path(__file__).parents[2]).returncode == 9


@pytest.mark.parametrize("moment", ["before", "after"])
# 1: rename the old one, 2: rename the new one, 3: delete nothing, 4: rename the old one again, 5: delete it
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_kill_leaves_the_old_or_the_new_directory(tmp_path: Path, number: int, moment: str) -> None:
    target = tmp_path / "out"
    target.mkdir()
    for name in ("a", "b"):
        (target / name).write_text("old")
    kill(target, number, moment)
    restore_directory(target)
    content = {path.name: path.read_text() for path in target.iterdir()}
    age = "old" if (number, moment) in {(1, "before"), (1, "after"), (2, "before")} else "new"
    assert content == {"a": age, "b": age}
    with atomic_directory(target) as partial:
        (partial / "c").write_text("newer")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in target.iterdir()] == ["c"]


def test_a_reader_finds_the_complete_directory(tmp_path: Path) -> None:
    path, replaced = tmp_path / "models", tmp_path / ".models.replaced"
    assert complete_directory(path) == path, "nothing was written"
    replaced.mkdir()
    assert complete_directory(path) == replaced, "between the two renames"
    path.mkdir()
    assert complete_directory(path) == path, "the old directory is not deleted yet"


def test_a_partly_deleted_directory_is_not_restored(tmp_path: Path) -> None:
    target = tmp_path / "out"
    (target / "a").mkdir(parents=True)
    kill(target, 5, "before")
    shutil.rmtree(target)
    restore_directory(target)
    assert not target.exists()


def test_a_failed_rename_restores_the_old_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_text("1")
    replace = Path.replace

    def refused(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(UserError, match="Input/output"), atomic_directory(target) as partial:
        (partial / "new").write_text("2")
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_replaces_the_target_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    link = tmp_path / "out"
    link.symlink_to(tmp_path / "disk" / "real")
    with atomic_directory(link) as partial:
        (partial / "new").write_text("1")
    assert link.is_symlink()
    assert [path.name for path in link.iterdir()] == ["new"]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["real"]


def test_permissions_follow_the_umask_which_does_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask of all threads changed"))
        write_json(tmp_path / "file", 1)
        with atomic_directory(tmp_path / "directory"):
            pass
    finally:
        monkeypatch.undo()
        os.umask(previous)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "directory").stat().st_mode & 0o777 == 0o750


def test_a_full_disk_is_a_user_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    with pytest.raises(UserError, match="Make space, then run") as caught, atomic_directory(target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "dvc" not in str(caught.value), "no project is here"
    assert list(tmp_path.iterdir()) == []
    problem = system_problem(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))  # of a pipe or /dev/full
    assert str(problem).startswith("The output could not be written: No space left on device.")
    (tmp_path / ".dvc").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1234 * 2**20))
    with (
        pytest.raises(UserError, match=r"full: .*out could not be written \(1,234 MiB free") as caught,
        atomic_directory(target),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "same command again" in str(caught.value)
    assert "`unseen clean`" in str(caught.value)
    assert "dvc gc" not in str(caught.value), "it deletes what stashes and other clones need"
    assert list(tmp_path.iterdir()) == [tmp_path / ".dvc"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, r"out cannot be accessed: Permission denied\.\n  Allow it .*ls -ld .*permissions"),
        (errno.EROFS, r"out cannot be accessed: Read-only file system\.\n .*mount the file system writable"),
        (errno.EIO, r"out: the disk or the network storage failed: Input/output error\.\n .*dmesg"),
        (errno.EFBIG, r"out could not be written: File too large\..*\n .*ulimit -f"),
        (errno.EMFILE, r"out cannot be opened: Too many open files\.\n .*ulimit -n"),
    ],
)
def test_a_problem_of_the_system_is_a_user_error(tmp_path: Path, number: int, message: str) -> None:
    for writer in (atomic_directory, atomic_file):
        with pytest.raises(UserError, match=message), writer(tmp_path / "out"):
            raise OSError(number, os.strerror(number))
    with pytest.raises(FileNotFoundError), atomic_directory(tmp_path / "out"):
        raise FileNotFoundError(errno.ENOENT, "a defect of the project, with its traceback")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 8.00 GiB for an array"),
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried"
        ),
        RuntimeError("Error in faiss::read_index: std::bad_alloc"),
        RuntimeError("could not create a primitive"),
    ],
)
def test_too_little_memory_is_a_user_error(tmp_path: Path, error: Exception) -> None:
    with (
        pytest.raises(UserError, match=r"The memory does not suffice: .* could not be allocated"),
        atomic_file(tmp_path / "out"),
    ):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_problem_within_a_library_of_rust_or_torch_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"disk is full: .*out could not"), atomic_file(tmp_path / "out"):
        raise RuntimeError("Error while serializing: No space left on device (os error 28)")
    with pytest.raises(UserError, match="out cannot be accessed: Permission"), atomic_file(tmp_path / "out"):
        raise PermissionError("Permission denied (os error 13)")  # of safetensors: without errno
    text = "unable to mmap 9360 bytes from file <data/m (1)/weights.safetensors>: Input/output error (5)"
    with (
        pytest.raises(UserError, match=r"^data/m \(1\)/weights.safetensors: the disk"),
        atomic_file(tmp_path / "out"),
    ):
        raise RuntimeError(text)  # of torch, while another file is read
    with pytest.raises(RuntimeError, match="os error 2"), atomic_file(tmp_path / "out"):
        raise RuntimeError("No such file (os error 2)")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def other_user(tmp_path: Path) -> Iterator[Path]:
    """A directory that this process can read and cannot write."""
    directory = tmp_path / "forbidden"
    directory.mkdir(mode=0o555)
    parents = [path for path in directory.parents if path.stat().st_uid == os.getuid() and path != Path("/")]
    modes = [path.stat().st_mode for path in parents]
    if os.getuid() == 0:  # root may write everywhere
        for path in parents:
            path.chmod(path.stat().st_mode | 0o055)
        os.seteuid(65534)
    yield directory
    if os.getuid() == 0:
        os.seteuid(0)
        for path, mode in zip(parents, modes, strict=True):
            path.chmod(mode)


def test_a_forbidden_directory_is_an_error_before_the_work(other_user: Path) -> None:
    expected = rf"{other_user}/models/.* cannot be accessed: Permission denied|{other_user}/models cannot be"
    with pytest.raises(UserError, match=expected):
        require_writable(other_user / "models")
    with pytest.raises(UserError, match="cannot be accessed: Permission denied"):
        write_json(other_user / "x.json", 1)


def test_a_check_of_a_directory_leaves_no_file(tmp_path: Path) -> None:
    require_writable(tmp_path / "a", tmp_path / "b/c")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "c"]


def test_a_check_of_a_directory_removes_the_file_of_an_interrupted_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: os.close(-1))  # EBADF
        with pytest.raises(OSError, match="Bad file descriptor"):
            require_writable(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    require_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_removes_the_partial_files_of_its_killed_writers(tmp_path: Path) -> None:
    for name in (".x.json.0a.partial", ".x.json.v2.0a.partial"):
        (tmp_path / name).write_text("{")
    write_json(tmp_path / "x.json", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.json.v2.0a.partial", "x.json"]


def test_a_partial_file_that_is_being_written_remains(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    killed = tmp_path / "a" / f".0.json.{'0' * 32}.partial"
    killed.write_text("{")
    foreign = tmp_path / ".notes.partial"
    foreign.write_text("of a user")
    folder = tmp_path / f".1.json.{'0' * 32}.partial"
    folder.mkdir()
    with atomic_file(tmp_path / "a" / "1.json") as partial:
        remove_partial_files(tmp_path)
        remove_partial_files(tmp_path / "a", "1.json")
        assert partial.exists()
        partial.write_text("1")
    assert not killed.exists()
    assert foreign.exists()
    assert folder.exists()


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_a_file_never_replaces_a_pipe_or_a_directory(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    os.mkfifo(target) if kind == "pipe" else target.mkdir()
    before = target.stat().st_ino
    with pytest.raises(UserError, match=f"{target} is a "), atomic_file(target):
        raise AssertionError("the check precedes the work")
    assert target.stat().st_ino == before
    assert os.listdir(tmp_path) == ["target"]


@pytest.mark.parametrize(
    ("kind", "reason"), [("pipe", "it is a named pipe, socket or device"), ("directory", "Is a directory")]
)
def test_a_pipe_or_directory_in_the_place_of_a_file_is_an_error(
    tmp_path: Path, kind: str, reason: str
) -> None:
    path = tmp_path / "file"
    assert regular(path) == path
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(UserError, match=f"file cannot be used: {reason}"), unreadable_is_an_error():
        regular(path)


def test_a_link_without_a_target_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.symlink_to("nothing")
    with atomic_file(target) as partial:
        partial.write_text("new")
    assert target.read_text() == "new"
