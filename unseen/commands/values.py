"""Values of options: paths, lists of numbers, shares."""

from pathlib import Path

import click

PATH = click.Path(path_type=Path)


def numbers(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    """Positive numbers separated by commas."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"{text!r} is no list of positive numbers, such as 1,2,4,8.")
    return numbers


def share_of_text(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """A share such as 1% or 0.01."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise click.BadParameter(f"{text!r} is no share between 0 and 1, such as 1% or 0.01.")
    return share
