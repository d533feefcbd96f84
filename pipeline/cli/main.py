"""The command `unseen` and its subcommands.

Subcommands of the graph (`run`, `study`, `diff`, `clean`, `recipe`, `data`, `lock`) work in the project of
the current directory: a clone, or what `init` made. The others (`index`, `measure`, `ladder`, `claims`,
`find`, `serve`, `evaluate`, `mteb`, `check`, `export-model`, `export-vectors`, `doctor`) need no graph; their
paths are relative to the current directory.
"""

import io
import os
from collections.abc import Sequence
from functools import wraps
from importlib import import_module
from typing import Any

import click

from unseen.cli.commands import environment, graph, parts, photos, project, recipes, vectors
from unseen.runtime.memory import LEAST, require_memory
from unseen.runtime.names import say
from unseen.runtime.stage import report_errors


def _with_memory(command: click.Command) -> click.Command:
    """A command that computes with torch, FAISS or OpenBLAS. It refuses a limit of memory below their needs,
    and states where a library ends the process."""
    run = command.callback
    assert run is not None

    @wraps(run)
    def checked(*arguments: Any, **options: Any) -> Any:
        import faulthandler

        require_memory(LEAST)
        if not faulthandler.is_enabled():
            faulthandler.enable(2)  # sys.stderr may be no file
        return run(*arguments, **options)

    command.callback = checked
    return command


COMPUTING = (
    *import_module("unseen_search.commands").COMMANDS,  # by name: nothing of the mission imports a product
    *(photos.ladder, photos.claims),
    *(vectors.evaluate, vectors.diff, vectors.mteb, parts.check),
)
COMMANDS = (
    *(project.init, project.lock),
    *(graph.run, graph.study, graph.clean),
    *(recipes.recipe, recipes.data),
    *map(_with_memory, COMPUTING),
    *(environment.doctor, environment.completion),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a subcommand and exits with its status. A UserError prints its message and exits with status 1, a
    mistake in the arguments with status 2."""
    # before the import of torch: threads that spin while they wait slow down each other on a busy machine
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        with report_errors():
            status = command.main(arguments, prog_name="unseen", standalone_mode=False)
    except click.ClickException as error:
        error.show(shown := io.StringIO())
        say(shown.getvalue().rstrip())  # a file name can be an argument
        raise SystemExit(error.exit_code) from None
    except click.Abort:
        raise SystemExit(130) from None
    if status:
        raise SystemExit(status)


@click.group(
    name="unseen",
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="unseen", message="%(version)s")
@click.option(
    "--trust",
    "packages",
    multiple=True,
    metavar="PACKAGE",
    help="Models may import losses, poolings, networks and methods from this package. Those that the project "
    "of the current directory names need no option.",
)
@click.pass_context
def command(context: click.Context, packages: tuple[str, ...]) -> None:
    """Deep metric learning, evaluated on classes that were not seen in training."""
    if packages:
        from unseen.runtime.parts import trusted

        context.with_resource(trusted(*packages))
