"""Commands that make a project outside of a clone, and accept another version of the package in it."""

import sys
from pathlib import Path

import click

from unseen.cli.commands.examples import Examples
from unseen.runtime.stage import enter_project


@click.command(
    cls=Examples,
    examples="""
    unseen init birds    in a new directory
    unseen init .        in this one
    """,
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def init(directory: Path) -> None:
    """Make a project with params.yaml, the graph, and folders for data, studies and your own code.

    Its stages run from this installation, as those of a clone do. No file is replaced.
    """
    from unseen.cli.init import init as start

    sys.stdout.write(start(directory))


@click.command()
def lock() -> None:
    """Accept the installed version of unseen in a project.

    Writes unseen.lock. Until then no stage runs from another version than the one that the project accepts.
    """
    enter_project()
    from unseen.cli.init import lock as accept

    sys.stdout.write(accept())
