"""Commands of the installation: what is present, and completion in a shell."""

import sys

import click

from unseen.cli.commands.examples import Examples
from unseen.runtime.stage import in_project

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.option(
    "--verify",
    is_flag=True,
    help="Read every output of the graph and its objects in DVC's cache, and compare them with dvc.lock. A "
    "damaged object is replaced by the file of the workspace, or removed.",
)
def doctor(verify: bool) -> None:
    """Print versions, devices, pretrained weights and data sets.

    The weights and data sets are those of block `run` in params.yaml. The exit status is 1 if
    one of them is missing, or if --verify finds an output that differs. Outside of a project
    there is no params.yaml.
    """
    from unseen.cli.doctor import examine

    report, complete = examine(in_project(), verify)
    sys.stdout.write(report)
    if not complete:
        raise SystemExit(1)


@click.command(
    cls=Examples,
    examples="""
    eval "$(unseen completion bash)"                                      in ~/.bashrc
    unseen completion fish > ~/.config/fish/completions/unseen.fish
    """,
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes the command in a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    command = click.get_current_context().find_root().command
    sys.stdout.write(kind(command, {}, "unseen", "_UNSEEN_COMPLETE").source() + "\n")
