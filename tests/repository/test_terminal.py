"""Control characters of names from outside reach no terminal: each message goes through one function."""

import ast
import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.torture.results import ROOT
from unseen.cli import main as cli
from unseen.data.ingest.remarks import remarks
from unseen.data.ingest.settings import FolderSource
from unseen.data.ingest.sources.folder import Directory
from unseen.evaluation import vectors
from unseen.frozen.labels import labels_of
from unseen.frozen.pictures import picture_names
from unseen.frozen.store import read_or_remove
from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress
from unseen.runtime.stage import report_errors
from unseen.training import resume
from unseen.training.checkpoint import Checkpoints
from unseen_search.catalog import building

ESCAPE = "\x1b[2J\x9b\u202e"
# `say` itself; text of other processes, which wrote it by `say`
_WRITERS = {"pipeline/runtime/names.py", "pipeline/cluster/task.py", "pipeline/cluster/console.py"}
_WRITES = ("sys.stderr.write", "sys.stderr.writelines", "sys.__stderr__.write", "warnings.warn")


def test_one_function_writes_messages() -> None:
    writers = set()
    for folder in ("pipeline", "stages", "unseen_search"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    call = ast.unparse(node.func)
                    if call in _WRITES or (call == "print" and "sys.stderr" in ast.unparse(node)):
                        writers.add(path.relative_to(ROOT).as_posix())
    assert writers == _WRITERS


def _error(path: Path) -> None:
    with report_errors():
        raise UserError(f"{path} is damaged.", f"Remove {path}.")


def _system_problem(path: Path) -> None:
    with report_errors():
        raise PermissionError(errno.EACCES, "denied", str(path))


def _labels(path: Path) -> None:
    path.with_suffix(".csv").write_text(f"path,label\na.jpg,x\n{ESCAPE}.jpg,y\nb.jpg,X{ESCAPE}\n")
    labels_of(str(path.with_suffix(".csv")), ["a.jpg", "b.jpg"])


def _folders(path: Path) -> None:
    labels_of("folders", [f"A{ESCAPE}/a.jpg", f"a{ESCAPE}/b.jpg"])


def _checkpoint(path: Path) -> None:
    (path / "00000002.pt").write_bytes(b"damaged")
    Checkpoints(path, "me").newest()


def _earlier_state(path: Path) -> None:
    (path / f"0-{ESCAPE}").mkdir()
    (path / f"0-{ESCAPE}" / "00000002.pt").touch()
    resume._explain_start(path / "0-this", {"a": 1})


def _alike(path: Path) -> None:
    labels = np.array([f"x{ESCAPE}", f"X{ESCAPE}"])
    vectors._numbered([vectors.Vectors(np.eye(2), labels, where=str(path))])


def _remarks(path: Path) -> None:
    """The remarks of stage `ingest` on class names and files."""
    from unseen.stages import ingest

    manifest = {
        "ingest": {
            "skipped_images": 1,
            "skipped": [{"source": f"{ESCAPE}.jpg"}],
            "dropped_classes": [f"class {ESCAPE}"],
        },
        "similar_labels": f"x{ESCAPE}",
        "duplicates": {"across_classes": 1, "pairs": [[f"a{ESCAPE}", f"b{ESCAPE}"]]},
    }
    source = FolderSource(path=str(path))
    assert len(list(remarks(source, manifest, path, "birds"))) == 4
    inputs = SimpleNamespace(settings=SimpleNamespace(source=source, ingest=None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "read_inputs", lambda *_: inputs)
        patch.setattr(ingest, "ingest", lambda *_: manifest)
        ingest.run("birds")


def _progress(path: Path) -> None:
    with Progress(f"embed {path}", 2, "files", interval=0.0) as progress:
        progress.advance(2, f"note {ESCAPE}")


def _argument(path: Path) -> None:
    cli.main(["find", str(path), str(path), f"--{ESCAPE}"])


def _another_model(path: Path) -> None:
    earlier = SimpleNamespace(about={"model": f"m{ESCAPE}", "fingerprint": "1"}, precision="float32")
    building._is_of_model(earlier, path, "2", "float32")


def _damaged(path: Path) -> None:
    raise ValueError(f"{path} is no table")


ENTRANCES: dict[str, Callable[[Path], Any]] = {
    "name of a file in an error": _error,
    "name of a file in an error of the system": _system_problem,
    "CSV of labels": _labels,
    "folders that look equal": _folders,
    "damaged checkpoint": _checkpoint,
    "state of another run": _earlier_state,
    "labels of vectors": _alike,
    "class names of ingest": _remarks,
    "progress": _progress,
    "argument of the command line": _argument,
    "model of a catalog": _another_model,
    "damaged store": lambda path: read_or_remove(path, _damaged),
    "file of a format that is not read": lambda path: picture_names(Directory(path), "index"),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_no_control_character_reaches_the_terminal(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"name {ESCAPE}"
    path.mkdir()
    (path / f"{ESCAPE}.jxl").touch()
    with suppress(SystemExit), report_errors():
        ENTRANCES[name](path)
    printed = "".join(capsys.readouterr())
    assert "\\x1b[2J" in printed
    assert not [character for character in printed if not character.isprintable() and character != "\n"]
