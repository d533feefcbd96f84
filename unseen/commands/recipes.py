"""Commands of the published recipes and data sets. They work in the directory of the project."""

import os
import sys

import click

from pipeline.runtime.stage import ROOT
from unseen.commands.examples import Examples


def _datasets(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return _recipe_names("datasets", incomplete)


def _methods(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return _recipe_names("methods", incomplete)


def _recipe_names(kind: str, incomplete: str) -> list[str]:
    """The published recipes whose names begin with `incomplete`."""
    names = sorted(path.stem for path in (ROOT / "pipeline/recipes" / kind).glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete) and not name.startswith("_")]


@click.command(
    cls=Examples,
    examples="""
    unseen recipe parts gsp
    unseen recipe parts gsp --diff HEAD
    """,
)
@click.argument("dataset", shell_complete=_datasets)
@click.argument("method", shell_complete=_methods)
@click.option(
    "--diff",
    "revision",
    metavar="REV",
    help="Print the differences from the recipe and code of a git revision.",
)
def recipe(dataset: str, method: str, revision: str | None) -> None:
    """Print every value of a recipe and the line that sets it."""
    from unseen import recipe as recipes

    os.chdir(ROOT)
    text = (
        recipes.recipe(dataset, method) if revision is None else recipes.difference(dataset, method, revision)
    )
    sys.stdout.write(f"{text}\n")


@click.command(
    cls=Examples,
    examples="""
    unseen data cub
    unseen data sop /data/sop
    """,
)
@click.argument("dataset", shell_complete=_datasets)
@click.argument("directory", required=False)
def data(dataset: str, directory: str | None) -> None:
    """Download the published files of a data set.

    A second call resumes; hashes are verified. DIRECTORY is relative to the project; default:
    data/raw/DATASET.
    """
    from pipeline.ingest.files.download import fetch

    os.chdir(ROOT)
    fetch(dataset, directory or f"data/raw/{dataset}")
