"""The options that describe a published network."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unseen.cli.commands.values import PATH

if TYPE_CHECKING:
    from unseen.frozen.network import Network


def _arguments(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Arguments of a network: KEY=VALUE. A value is JSON, otherwise text."""
    arguments: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE, such as pad_type=same.")
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value
    return arguments


def _networks(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The networks of timm whose names begin with `incomplete`."""
    from unseen.networks.published_network import timm

    names: list[str] = timm.list_models(f"{incomplete}*", pretrained=True)
    return names


def network_options(function: Any) -> Any:
    """Adds the options that describe a published network."""
    options = (
        click.option(
            "--network",
            "name",
            metavar="NAME",
            shell_complete=_networks,
            help="A network of timm, or owner/name of a repository of the Hugging Face hub, with its "
            "published head and preprocessing. Its weights are downloaded, unless --weights names a file.",
        ),
        click.option(
            "--weights", type=PATH, help="A .safetensors or weights-only .pth file with the weights."
        ),
        click.option("--size", type=click.IntRange(1), help="Pixels per side. Default: as published."),
        click.option(
            "--statistics",
            metavar="NAME",
            help="Mean and standard deviation for --weights: imagenet, half, clip, none, or those of a "
            "network of "
            "timm with its tag.",
        ),
        click.option(
            "--argument",
            "arguments",
            metavar="KEY=VALUE",
            multiple=True,
            callback=_arguments,
            help="Of timm.create_model, e.g. pad_type=same.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def network_of(
    name: str | None,
    weights: Path | None,
    size: int | None,
    statistics: str | None,
    arguments: dict[str, Any],
) -> "Network | None":
    """The network of the options of `network_options`; None without any."""
    if name is None:
        if weights or statistics or arguments:
            raise click.UsageError("--weights, --statistics and --argument need --network.")
        if size is None:
            return None
    from unseen.frozen.network import Network, default_network

    if name is None:
        return replace(default_network(), size=size)
    from unseen.frozen.hub import of_hub

    return of_hub(Network(name, weights, size, statistics, arguments))
