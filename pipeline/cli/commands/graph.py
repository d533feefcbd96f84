"""Commands of the graph. They work in the directory of the project."""

import sys
from pathlib import Path

import click

from unseen.cli.commands.examples import Examples, Lists
from unseen.cli.commands.values import PATH
from unseen.runtime.stage import enter_project, in_project

_PRICE = "Print steps, operations, memory, hours and disk of all trainings, and start none."


@click.command(
    cls=Examples,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    examples="""
    unseen run                       every stage that is missing or changed
    unseen run -j 4                  up to four stages at a time
    unseen run -f train@parts-ms-0   one stage, again
    unseen run --cost                steps, memory and hours of the trainings
    """,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF DVC REPRO] [TARGETS]...")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    help="Stages that run at the same time. Default: the trainings for which the cluster of RAY_ADDRESS has "
    "resources, 1 without a cluster.",
)
@click.option("--cost", "priced", is_flag=True, help=_PRICE)
def run(arguments: tuple[str, ...], jobs: int | None, priced: bool) -> int:
    """Run the stages that are missing or changed, and print the result.

    It is `dvc repro` with the same arguments, and the same results in parallel. TARGETS are stages, such as
    train@parts-ms-0; default: all.

    A model of all labelled classes of a folder of photos is that of `unseen ladder PHOTOS OUTPUT --ship`. The
    graph keeps the test classes out of every training; training.protocol=refit trains on all train classes
    for the length that held-out ones chose.
    """
    if "--ship" in arguments:
        raise click.UsageError(
            "--ship is an option of `unseen ladder`: `unseen ladder PHOTOS OUTPUT --ship` trains on all "
            "labelled classes what held-out classes selected, for `unseen index --model OUTPUT/model`. "
            "In the graph, training.protocol=refit trains on all train classes with the selected length."
        )
    enter_project()
    if priced:
        from unseen.cli.cost import cost
        from unseen.config.document import Params

        sys.stdout.write(cost(Params()))
        return 0
    from unseen.cli.run import run as run_graph

    return run_graph(arguments, jobs)


def _studies(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from unseen.experiments.catalogue import studies

    in_project()
    return [name for name in studies() if name.startswith(incomplete)]


@click.command(
    cls=Lists,
    examples="""
    unseen study --list                                   every table and figure, with its state
    unseen study crt-table-8 --mini                       its rows on the built-in set
    unseen study crt-table-8 --datasets cub --seeds 0 1   the table, with two seeds
    unseen study crt-table-8 --cost                       what it will cost, without a training
    unseen study example                                  of a file in studies/
    """,
)
@click.argument("name", required=False, metavar="[STUDY]", shell_complete=_studies)
@click.option("--datasets", multiple=True, metavar="NAME...", help="Data sets. Default: those of the study.")
@click.option(
    "--seeds",
    multiple=True,
    type=click.IntRange(0),
    metavar="N...",
    help="Seeds. Default: those of the study.",
)
@click.option("--mini", is_flag=True, help="On the built-in set, with small networks.")
@click.option("--list", "listed", is_flag=True, help="List the studies.")
@click.option("--no-run", is_flag=True, help="Only set params.yaml.")
@click.option("--cost", "priced", is_flag=True, help=_PRICE)
@click.option("-j", "--jobs", type=click.IntRange(1), help="As in `unseen run`.")
def study(
    name: str | None,
    datasets: tuple[str, ...],
    seeds: tuple[int, ...],
    mini: bool,
    listed: bool,
    no_run: bool,
    priced: bool,
    jobs: int | None,
) -> int:
    """Train the rows of a table or figure, and show them beside the printed numbers.

    Sets run.datasets, run.methods and run.seeds in params.yaml to the rows of STUDY, and runs the graph. Rows
    that are trained already are not trained again. A study whose rows start at the network of another one
    runs that study before.
    """
    enter_project()
    from unseen.cli import study as studies
    from unseen.experiments.catalogue import in_order

    if listed or name is None:
        sys.stdout.write(studies.listing())
        return 0
    if mini and datasets:
        raise click.UsageError("--mini is the built-in set: leave out --datasets.")
    *before, _ = [name] if mini or no_run else in_order(name)
    chosen = [*((each, (), (), False) for each in before), (name, datasets, seeds, mini)]
    if priced:
        sys.stdout.write("".join(studies.price(*each) for each in chosen))
        return 0
    for number, each in enumerate(chosen):
        sys.stdout.write(studies.select(*each))
        sys.stdout.flush()
        if no_run:
            return 0
        from unseen.cli.run import run as run_graph

        # Stage `resolve` reads the model of the study before, which DVC does not compare for it.
        if number and (status := run_graph(("--force", "--single-item", "resolve"), 1)):
            return status
        if status := run_graph((), jobs):
            return status
    return 0


@click.command(
    cls=Examples,
    examples="""
    unseen clean          list, and ask
    unseen clean --yes    remove without a question
    """,
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--states", is_flag=True, help="Also remove the states of unfinished trainings and sweeps.")
@click.option(
    "--clone",
    "clones",
    type=PATH,
    multiple=True,
    help="Another clone that uses the same cache, for each; `.` if no other one does.",
)
def clean(yes: bool, states: bool, clones: tuple[Path, ...]) -> None:
    """List what takes space; remove what no commit needs.

    Removes files of DVC's cache that neither the workspace nor a commit, stash or experiment uses, and logs
    of parallel runs. A cache outside of the project is cleaned only if --clone names the clones that use it.
    """
    clones = tuple(clone.resolve() for clone in clones)
    enter_project()
    from unseen.cli import clean as cleaning

    sys.stdout.write("\n".join([*cleaning.clean(yes, states, clones), ""]))
