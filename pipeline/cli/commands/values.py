"""Values of options: paths, lists of numbers, shares."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)


def labels_option(default: str | None = "folders", more: str = ".") -> Callable[[Any], Any]:
    """The option --labels of commands that read photos; `more` ends the sentence with further sources."""
    return click.option(
        "--labels",
        default=default,
        show_default=default is not None,
        metavar="SOURCE",
        help="The product of each photo: `folders` (the name of its folder), or a CSV with the columns path "
        f"and label{more}",
    )


def numbers(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    """Positive numbers separated by commas."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"{text!r} is not a list of positive numbers, such as 1,2,4,8.")
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
        raise click.BadParameter(f"{text!r} is not a share between 0 and 1, such as 1% or 0.01.")
    return share


def files_by_name(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    """NAME=FILE values."""
    pairs = [value.partition("=") for value in values]
    for (name, separator, path), value in zip(pairs, values, strict=True):
        if not (name and separator and path):
            raise click.BadParameter(f"{value!r} is not a NETWORK=FILE, such as vit-tiny=vit.safetensors.")
    return {name: Path(path) for name, _, path in pairs}
