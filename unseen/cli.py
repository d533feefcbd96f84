"""The command `unseen`: run the graph, print a recipe, fetch the files of a data set."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from pipeline.runtime.stage import ROOT, report_errors


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line and ends with the status of the subcommand; a UserError is its message and
    status 1."""
    options, rest = _parser().parse_known_args(arguments)
    if rest and options.command != "run":
        _parser().error(f"unknown arguments: {' '.join(rest)}")
    os.chdir(ROOT)
    with report_errors():
        if options.command == "run":
            raise SystemExit(run([*options.targets, *rest]))
        if options.command == "recipe":
            from unseen.recipe import difference, recipe

            compare = options.diff is not None
            text = (
                difference(options.dataset, options.method, options.diff)
                if compare
                else recipe(options.dataset, options.method)
            )
            sys.stdout.write(f"{text}\n")
        else:
            from pipeline.ingest.files.download import fetch

            fetch(options.dataset, options.directory or f"data/raw/{options.dataset}")


def run(arguments: Sequence[str]) -> int:
    """`dvc repro` with its own arguments; returns its exit status."""
    return subprocess.run(
        [sys.executable, "-m", "dvc", "repro", *arguments], cwd=ROOT, check=False
    ).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="unseen", description="Deep metric learning evaluated on unseen classes."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser(
        "run", help="build what is missing or changed: `dvc repro`, whose arguments it takes"
    )
    run_parser.add_argument(
        "targets", nargs="*", help="stages, such as train@parts-ms-0; all of them if none is given"
    )
    recipe_parser = commands.add_parser(
        "recipe", help="print every value of a recipe and the line that sets it"
    )
    recipe_parser.add_argument("dataset")
    recipe_parser.add_argument("method")
    recipe_parser.add_argument(
        "--diff", metavar="REV", help="print what differs from the recipe and code of a git revision"
    )
    data_parser = commands.add_parser(
        "data", help="download the published files of a data set, with resume and hash check"
    )
    data_parser.add_argument("dataset")
    data_parser.add_argument("directory", nargs="?", help="where to put them; data/raw/DATASET if not given")
    return parser
