"""Commands of the published recipes and data sets. They work in the directory of the project."""

import sys
from functools import partial

import click

from unseen.cli.commands.examples import Examples
from unseen.runtime.stage import PACKAGE, enter_project, in_project


def _recipe_names(_: click.Context, __: click.Parameter, incomplete: str, kind: str) -> list[str]:
    """The published recipes whose names begin with `incomplete`."""
    names = sorted(path.stem for path in (PACKAGE / "recipes" / kind).glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete) and not name.startswith("_")]


@click.command(
    cls=Examples,
    examples="""
    unseen recipe parts gsp
    unseen recipe parts gsp --diff HEAD
    unseen recipe parts gsp --trial 2      of its sweep
    unseen recipe parts ms --fold 1        of an ensemble
    unseen recipe head gsp                 on a frozen network
    unseen recipe arm crt-average          of the claims
    """,
)
@click.argument("dataset", shell_complete=partial(_recipe_names, kind="datasets"))
@click.argument("method", shell_complete=partial(_recipe_names, kind="methods"))
@click.option(
    "--diff",
    "revision",
    metavar="REV",
    help="Print the differences from the recipe and code of a git revision.",
)
@click.option("--fold", type=click.IntRange(1), help="The training of a fold of the ensembles.")
@click.option("--trial", type=click.IntRange(1), help="A trial of the sweep of the method.")
def recipe(dataset: str, method: str, revision: str | None, fold: int | None, trial: int | None) -> None:
    """Print every value of a recipe and the line that sets it.

    In place of DATASET, `head` prints METHOD on a frozen network, and `arm` an arm of the claims. Outside of
    a project there is no params.yaml: the recipe is the published one.
    """
    chosen = sum(option is not None for option in (revision, fold, trial))
    if chosen > (dataset not in ("head", "arm")):
        raise click.UsageError("Give one of --diff, --fold and --trial, and none for a head or an arm.")
    if revision is not None:
        enter_project()
        from unseen.cli import recipe as recipes

        text = recipes.difference(dataset, method, revision)
    else:
        from unseen.cli import recipe as recipes
        from unseen.config.document import Params

        params = Params() if in_project() else Params(text="")
        text = recipes.recipe(params, dataset, method, fold, trial)
    sys.stdout.write(f"{text}\n")


@click.command(
    cls=Examples,
    examples="""
    unseen data cub
    unseen data sop /data/sop
    """,
)
@click.argument("dataset", shell_complete=partial(_recipe_names, kind="datasets"))
@click.argument("directory", required=False)
def data(dataset: str, directory: str | None) -> None:
    """Download the published files of a data set.

    A second call resumes; hashes are verified. DIRECTORY is relative to the project, or to the current
    directory outside of a project; default: data/raw/DATASET.
    """
    from unseen.data.ingest.files.download import fetch

    in_project()
    fetch(dataset, directory or f"data/raw/{dataset}")
