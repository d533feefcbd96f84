"""Every command that a message prints repairs what the message names: `python -m tests.torture.remedies`.

`printed` collects the messages with a command from the syntax tree of the product. Each has an entry in
remedy_table.py: situations in which it is printed, or the reason why its command is not executed. A situation
damages a copy of the finished miniature project, runs a command that prints the message, and executes the
commands that it printed, literally but for placeholders: those of a sequence one after the other,
alternatives each in a copy of its own. It is a violation unless the message is printed, the commands succeed,
the first command then succeeds, and every output and every object of DVC's cache has the bytes of an
undisturbed run. The campaign continues where it was stopped.
"""

import ast
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.forks import forks
from tests.torture import named, results
from tests.torture.miniature import Project, project
from tests.torture.results import ROOT, Result

STATE = results.RESULTS / "remedies.json"
PRODUCT = ("pipeline", "stages", "unseen_search", "dvc_parallel")
_PROGRAM = (
    r"(?:dvc (?:cache|checkout|exp|fetch|pull|repro|stage|status)|git (?:add|checkout|commit|log|stash)"
    r"|unseen (?:--|check|claims|clean|doctor|evaluate|index|ladder|lock|measure|run|serve|study|data|init)"
    r"|rm |ray job|python -m|pip install|cd )"
)
_COMMAND = re.compile(rf"(?:`|: |\n *|^){_PROGRAM}")
_QUOTED = re.compile(rf"`({_PROGRAM}[^`]*)`")
_OPEN = re.compile(rf"(?:: |^) *({_PROGRAM}.*)$", re.MULTILINE)
_STATE = re.compile(r"data/(state|logs|fold_logs|raw)/")


class Message(NamedTuple):
    """A string of the product with a command. `text`: with `{}` for what is computed."""

    module: str
    text: str


def printed(folders: Sequence[str] = PRODUCT, root: Path = ROOT) -> list[Message]:
    """The messages with a command; no documentation, and no example or help of a command line."""
    return [
        Message(path.relative_to(root).as_posix(), text)
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
        for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if _COMMAND.search(text)
    ]


def _texts(node: ast.AST) -> Iterator[str]:
    text = _text(node)
    if text is not None:
        yield text
        return
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        if name != "decorator_list":
            for child in children:
                is_documentation = isinstance(child, ast.Expr) and _text(child.value) is not None
                is_help = isinstance(child, ast.keyword) and child.arg in ("help", "epilog")
                if isinstance(child, ast.AST) and not is_documentation and not is_help:
                    yield from _texts(child)


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) or "{}" for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = _text(node.left), _text(node.right)
        return None if parts == (None, None) else "".join("{}" if part is None else part for part in parts)
    return None


@dataclass(frozen=True)
class Situation:
    """`shown` prints the message after `fault` and the command `before` it. `words`: what a user writes for a
    placeholder. `by_hand`: what the message tells in words, before its commands. `again`: `shown` succeeds
    after the commands."""

    shown: str
    fault: Callable[[Path], object] = lambda project: None
    before: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    again: bool = True
    by_hand: str = ""


def commands(message: str, words: Mapping[str, str]) -> list[list[str]]:
    """The commands of a printed message: alternatives, each a sequence."""
    quoted = _QUOTED.findall(message) or [text.rstrip(".") for text in _OPEN.findall(message)]
    for placeholder, word in words.items():
        quoted = [command.replace(placeholder, word) for command in quoted]
    return [quoted] if ", then `" in message or "\n  cd " in message else [[command] for command in quoted]


class Place:
    """The finished miniature project and its copies, with the commands of forks."""

    def __init__(self, finished: Project, programs: Path) -> None:
        self.finished, self.programs, self.path = finished, programs, finished.path

    def run(self, command: str) -> tuple[int, str]:
        """Status and output of a command of a shell in the copy."""
        variables = self.finished.environment()
        variables |= {"PATH": f"{self.programs}:{variables['PATH']}", "PYTHONPATH": str(self.path)}
        variables |= {
            f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=self.path,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return ended.returncode, ended.stdout.decode(errors="replace")

    def renew(self) -> None:
        """A new copy, of which DVC has read every file."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.finished.path, self.path, symlinks=True)
        self.succeed("dvc status --quiet")

    def succeed(self, command: str) -> None:
        status, output = self.run(command)
        if status:
            raise RuntimeError(f"{command}: {output[-500:]}")

    def violations(self, message: Message, situation: Situation) -> tuple[int, list[str]]:
        """The number of alternatives that were executed, and what is wrong."""
        problems: list[str] = []
        number, count = 0, 1
        while number < count:
            self.renew()
            if situation.before:
                self.succeed(situation.before)
            situation.fault(self.path)
            status, output = self.run(situation.shown)
            text = _shown(message, output)
            if text is None:
                return number, [f"`{situation.shown}` prints another message: {output.strip()[-300:]}"]
            alternatives = commands(text, situation.words)
            count = len(alternatives)
            name = "; ".join(alternatives[number])
            if situation.by_hand:
                self.succeed(situation.by_hand)
            for command in alternatives[number]:
                status, output = self.run(command)
                is_report = command.startswith("unseen doctor")  # its status is 1 after it found a fault
                if status and not is_report:
                    problems.append(f"`{command}` fails: {output.strip()[-300:]}")
            status, output = self.run(situation.shown) if situation.again else (0, "")
            if status or _shown(message, output) is not None:
                problems.append(f"after `{name}`, `{situation.shown}` says: {output.strip()[-300:]}")
            problems += [f"after `{name}`: {problem}" for problem in self._different()]
            number += 1
        return number, problems

    def _different(self) -> list[str]:
        """The outputs with other bytes than those of the undisturbed run, and the damaged objects of DVC's
        cache."""
        before = {name: text for name, text in self.finished.outputs().items() if not _STATE.match(name)}
        now = Project(self.path, self.finished.scratch).outputs()
        problems = [f"{name} differs" for name in before if now.get(name) != before[name]]
        for path in (self.path / ".dvc/cache/files/md5").rglob("*"):
            if path.is_file():
                digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
                if digest != (path.parent.name + path.name).removesuffix(".dir"):
                    problems.append(f"object {digest} of DVC's cache is damaged")
        return problems


def _shown(message: Message, output: str) -> str | None:
    """The message in an output; each computed part is text of one line."""
    pattern = ".*".join(re.escape(part) for part in message.text.strip().split("{}"))
    match = re.search(pattern, output, re.IGNORECASE)
    return match[0] if match else None


def module_of(message: Message) -> str:
    """The module of a message, by the name under which it is imported."""
    return message.module.removesuffix(".py").replace("/", ".").replace("pipeline.", "unseen.")


@contextmanager
def place(edit: Callable[[Path], object] = lambda path: None) -> Iterator[Place]:
    with (
        project(edit=edit) as finished,
        tempfile.TemporaryDirectory(prefix="unseen-forks-") as programs,
        forks(Path(programs), finished.environment()),
    ):
        made = Place(finished, Path(programs))
        git = "git commit --quiet --message"
        made.succeed(f"{git} code && dvc repro --quiet && git add --all && {git} results")
        made.path = finished.scratch / "case" / finished.path.name
        yield made


def campaign(names: Sequence[str], state: Path, edit: Callable[[Path], object] = lambda path: None) -> None:
    """Executes the situations that the results lack, in a project that `edit` changed."""
    from tests.torture.remedy_table import SITUATIONS

    def modules(name: str) -> list[str]:
        return [module_of(SITUATIONS[name][0])]

    with place(edit) as here:

        def result(name: str) -> Result:
            executed, problems = here.violations(*SITUATIONS[name])
            return {"executed": executed, "violations": problems}

        named.campaign(names, state, modules, result, _line)


def _line(result: Result) -> str:
    return f"{result['executed']} executed: {'; '.join(result['violations']) or 'ok'}"


def main() -> None:
    from tests.torture.remedy_table import SITUATIONS

    description = "The commands of messages repair what they name."
    campaign(*named.options(description, "situations", SITUATIONS, STATE))


if __name__ == "__main__":
    main()
