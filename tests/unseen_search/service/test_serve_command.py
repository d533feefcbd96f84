"""The command `unseen serve`: its address, and its end."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from unseen.cli import main as cli
from unseen.runtime.errors import UserError
from unseen_search.serve import serve
from unseen_search.service.settings import ServiceSettings


def test_an_address_of_other_machines_needs_a_token(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSEEN_TOKEN", raising=False)
    for host in ("0.0.0.0", "shop.example"):
        with pytest.raises(UserError, match="no token is set"):
            serve(catalog, host, 0, ServiceSettings())
    monkeypatch.setenv("UNSEEN_TOKEN", "secret")
    with pytest.raises(UserError, match="none is not a catalog"):
        serve(catalog.with_name("none"), "0.0.0.0", 0, ServiceSettings())


def test_states_the_package_that_is_not_installed(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "unseen_search.service.app", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(UserError, match=r"needs the package fastapi\.\n.*unseen\[serve\]"):
        serve(catalog, "127.0.0.1", 0, ServiceSettings())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_command_refuses_a_taken_port(
    catalog: Path, host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSEEN_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit) as ended:
        cli.main(["serve", str(catalog), "--host", host, "--port", str(taken.getsockname()[1])])
    assert ended.value.code == 1
    printed = capsys.readouterr().err
    assert "cannot be used" in printed
    assert "Traceback" not in printed


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(catalog: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "unseen", "serve", str(catalog), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    assert process.stderr is not None
    assert "http://127.0.0.1:" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors
