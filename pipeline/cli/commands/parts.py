"""The command that checks a part from outside."""

import sys
from typing import Any

import click

from unseen.cli.commands.examples import Examples


def _values(_: click.Context, __: click.Parameter, arguments: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE arguments, whose values are YAML as in a recipe."""
    from ruamel.yaml import YAML

    pairs = [argument.partition("=") for argument in arguments]
    for key, separator, _text in pairs:
        if not separator:
            raise click.BadParameter(f"{key!r} is not KEY=VALUE, such as gamma=80.")
    return {key: YAML(typ="safe", pure=True).load(text) for key, _separator, text in pairs}


@click.command(
    cls=Examples,
    examples="""
    unseen check parts.circle:Circle
    unseen check parts.circle:Circle gamma=80 margin=0.25
    unseen check parts.digits path=data/raw/digits
    unseen check parts.means
    """,
)
@click.argument("part", metavar="PACKAGE.MODULE:CLASS")
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...", callback=_values)
def check(part: str, values: dict[str, Any]) -> None:
    """Test a part of your own as those of the library are tested: a loss, pooling, network, method, sampler,
    transform or metric, or the reader or section of the report PACKAGE.MODULE.

    The package may be in the current directory. KEY=VALUE are the settings that the part needs, as in a
    recipe; a method gets a small network and small images, unless they are named. A section is drawn with the
    results of the last run. Prints a line for each property; the exit status is 1 if the part does not have
    one.
    """
    from unseen.cli.checks import results, settings_of
    from unseen.cli.checks.losses import takes_references
    from unseen.losses.settings import LossSettings

    settings, failed = settings_of(part, values), False
    for result in results(settings):
        sys.stdout.write(f"{'FAILED' if result.failure else 'passed'}  {result.name}\n")
        if result.failure:
            failed = True
            sys.stdout.write(f"{'':8}{result.failure.what}\n{'':8}{result.failure.remedy}\n")
    if isinstance(settings, LossSettings) and settings.inputs == "pairs" and not takes_references(settings):
        sys.stdout.write(
            "note    forward takes no references: a recipe with `memory` cannot use this loss.\n"
        )
    if failed:
        raise SystemExit(1)
