"""A campaign of named cases that continues where it was stopped."""

import argparse
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from tests.torture import results
from tests.torture.file_operations import cpu_seconds
from tests.torture.results import Result


def options(description: str, kind: str, names: Collection[str], state: Path) -> tuple[list[str], Path]:
    """The names of the cases and the file of the results, from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(kind, nargs="*", help="names; all by default")
    parser.add_argument("--state", type=Path, default=state, help="file of the results")
    arguments = vars(parser.parse_args())
    if unknown := [name for name in arguments[kind] if name not in names]:
        parser.error(f"unknown: {', '.join(unknown)}; the {kind} are {', '.join(names)}")
    return arguments[kind] or [*names], arguments["state"]


def campaign(
    names: Sequence[str],
    state: Path,
    modules: Callable[[str], Sequence[str]],
    case: Callable[[str], Result],
    line: Callable[[Result], str],
) -> None:
    """Runs the cases that the results in `state` lack.

    modules: those that a case executes. case: runs it and returns its result. line: the result in words.
    """
    recorded = results.load(state)
    for name in names:
        result = results.current(recorded, name, modules(name))
        if "cpu_seconds" in result:
            continue
        start = cpu_seconds()
        result |= case(name)
        result["cpu_seconds"] = cpu_seconds() - start
        results.save(state, recorded)
        print(f"{name}: {line(result)}", flush=True)
