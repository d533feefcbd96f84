"""The command `unseen`: runs the graph, prints a recipe, downloads the files of a data set."""

import argparse
import os
import sys
from collections.abc import Sequence

from pipeline.runtime.stage import ROOT, report_errors


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a subcommand and exits with its status. A UserError prints its message and exits with status 1."""
    options, unknown = _parser().parse_known_args(arguments)
    if unknown and options.command != "run":
        _parser().error(f"unknown arguments: {' '.join(unknown)}")
    os.chdir(ROOT)
    with report_errors():
        if options.command == "run":
            from pipeline.scheduling.run import run

            raise SystemExit(run(options.targets, unknown, options.jobs))
        if options.command == "recipe":
            from unseen.recipe import difference, recipe

            if options.diff is None:
                text = recipe(options.dataset, options.method)
            else:
                text = difference(options.dataset, options.method, options.diff)
            sys.stdout.write(f"{text}\n")
        else:
            from pipeline.ingest.files.download import fetch

            fetch(options.dataset, options.directory or f"data/raw/{options.dataset}")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of 1 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="unseen", description="Deep metric learning evaluated on unseen classes."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser(
        "run", help="run the stages that are missing or changed, as `dvc repro`, with the same options"
    )
    run_parser.add_argument(
        "-j",
        "--jobs",
        type=_positive,
        metavar="N",
        help="stages that run at the same time; default: trainings for which the cluster of RAY_ADDRESS has "
        "resources, 1 without a cluster",
    )
    run_parser.add_argument(
        "targets", nargs="*", help="stages, such as train@parts-ms-0; default: all stages"
    )
    recipe_parser = commands.add_parser(
        "recipe", help="print every value of a recipe and the line that sets it"
    )
    recipe_parser.add_argument("dataset")
    recipe_parser.add_argument("method")
    recipe_parser.add_argument(
        "--diff", metavar="REV", help="print the differences from the recipe and code of a git revision"
    )
    data_parser = commands.add_parser(
        "data", help="download the published files of a data set; resumes, and verifies hashes"
    )
    data_parser.add_argument("dataset")
    data_parser.add_argument("directory", nargs="?", help="target directory; default: data/raw/DATASET")
    return parser
