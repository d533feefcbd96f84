"""Runs the tests in forks of the process that collected them: `pytest --forks 3`.

A process imports the libraries and collects the tests for 20 to 40 s of CPU time. Here one does; its forks
share the memory. A fork runs the tests of one group after the other, and sends the reports of each test.
"""

import gc
import os
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_Step = tuple[int, int | None]  # the index of a test, and that of the next one of its group


@dataclass
class _Fork:
    process: int
    steps: list[_Step] = field(default_factory=list)  # of its group that it has not begun, the last one first
    running: int | None = None


def run_in_forks(session: pytest.Session, groups: Iterable[list[int]], forks: int) -> None:
    """Runs the tests of `session` with the indices of each group. A group runs in one process, in its order;
    the groups begin in their order.

    A process that ends during a test fails this test; another one runs the rest of its group.
    """
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # a fork has a folder in it
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all objects
    waiting = [_steps(group) for group in reversed(list(groups))]
    active: dict[Connection, _Fork] = {}
    started = 0
    while waiting or active:
        while waiting and len(active) < forks and not _stops(session):
            connection, process = _start(session, started, active)
            active[connection] = _Fork(process)
            started += 1
        if not active:
            break
        for connection in wait(list(active)):
            assert isinstance(connection, Connection)
            fork = active[connection]
            try:
                content = connection.recv()
            except EOFError:
                del active[connection]
                status = os.waitstatus_to_exitcode(os.waitpid(fork.process, 0)[1])
                if fork.running is not None:
                    _lost(session, fork.running, f"the process of the test ended with {status}")
                    waiting.append(fork.steps)
                continue
            if isinstance(content, warnings.WarningMessage):
                arguments = {"warning_message": content, "when": "runtest", "nodeid": "", "location": None}
                session.config.hook.pytest_warning_recorded.call_historic(kwargs=arguments)
                continue
            if fork.running is not None:
                _report(session, fork.running, content)
                fork.running = None
            if not fork.steps and waiting:
                fork.steps = waiting.pop()
            step = None if _stops(session) or not fork.steps else fork.steps.pop()
            fork.running = None if step is None else step[0]
            connection.send(step)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _steps(group: list[int]) -> list[_Step]:
    following = [*group[1:], None]
    return list(zip(group, following, strict=True))[::-1]


def _stops(session: pytest.Session) -> bool:
    return bool(session.shouldfail or session.shouldstop)


def _report(session: pytest.Session, index: int, contents: list[dict[str, Any]]) -> None:
    hook, item = session.config.hook, session.items[index]
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for content in contents:
        report = hook.pytest_report_from_serializable(config=session.config, data=content)
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _lost(session: pytest.Session, index: int, message: str) -> None:
    item = session.items[index]
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _start(session: pytest.Session, number: int, others: Iterable[Connection]) -> tuple[Connection, int]:
    """Starts fork `number`. Returns the connection to it, and its process."""
    here, there = Pipe()
    if process := os.fork():
        there.close()
        return here, process
    status = 1
    try:
        for connection in (here, *others):
            connection.close()
        _run(session, number, there)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _run(session: pytest.Session, number: int, connection: Connection) -> None:
    """Runs the tests that `connection` names, until it names none."""
    config: Any = session.config
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files would be those of all forks
    capture.start_global_capturing()
    base = config._tmp_path_factory.getbasetemp() / f"fork-{number}"
    base.mkdir()
    config._tmp_path_factory._basetemp = base
    messages = _Messages(connection)
    config.pluginmanager.register(messages)
    connection.send(None)
    while (step := connection.recv()) is not None:
        item, following = (None if index is None else session.items[index] for index in step)
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)


@dataclass
class _Messages:
    """The plugin of a fork, which sends what pytest would print."""

    connection: Connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        to_serializable = item.config.hook.pytest_report_to_serializable
        self.connection.send([to_serializable(config=item.config, report=report) for report in reports])
        return True

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Sends the warning as text: the object that it is about may not be serializable."""
        place = warning_message.filename, warning_message.lineno
        text = str(warning_message.message)
        self.connection.send(warnings.WarningMessage(text, warning_message.category, *place))
