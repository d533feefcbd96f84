"""The limits on untrusted cases: each way to leave them is a violation, and the other cases go on."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torture import limited
from tests.torture.limited import Counts, check
from unseen.runtime.errors import UserError


def refuse() -> None:
    raise UserError("What.", "Remedy.")


def exhaust() -> None:
    try:
        bytearray(2 * limited.MEMORY)
    except MemoryError as error:
        raise ValueError("too large") from error


def compute() -> None:
    while True:
        pass


def write_outside() -> None:
    try:
        Path("../outside").write_text("x")
    except OSError as error:
        raise ValueError("hidden by a parser") from error


def import_outside() -> None:
    importlib.import_module("imported_first")


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "read": (lambda: Path("inside").write_text("x"), ""),
    "import": (import_outside, ""),
    "refused": (refuse, ""),
    "limited": (exhaust, ""),
    "another exception": (lambda: {}["x"], "KeyError: 'x'"),
    "no message": (lambda: (_ for _ in ()).throw(ValueError()), "ValueError without a message"),
    "out of memory": (lambda: bytearray(2 * limited.MEMORY), "MemoryError"),
    "process": (lambda: subprocess.run(["true"], check=True), "subprocess.Popen"),
    "outside": (write_outside, "open ('../outside'"),
    "endless": (compute, "more than 0.2 s of CPU"),
    "waiting": (lambda: time.sleep(30), "no end within 2 s"),
    "dead": (lambda: os.kill(os.getpid(), signal.SIGSEGV), "ended the process by SIGSEGV"),
    "last": (refuse, ""),
}


@pytest.mark.slow
def test_counts_each_kind_of_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "SECONDS", 0.2)
    monkeypatch.setattr(limited, "WALL", 2.0)
    counts = Counts()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "imported_first.py").touch()
    monkeypatch.syspath_prepend(modules)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    check([(name, run) for name, (run, _) in CASES.items()], lambda run: run(), scratch, counts)
    assert (counts.read, counts.refused, counts.limited, counts.cases) == (2, 2, 1, len(CASES))
    expected = {name: problem for name, (_, problem) in CASES.items() if problem}
    assert counts.violations.keys() == expected.keys()
    for name, problem in expected.items():
        assert counts.violations[name].startswith(problem), name
    names = sorted(path.name for path in tmp_path.rglob("*"))
    assert names == ["imported_first.py", "inside", "modules", "scratch"]
