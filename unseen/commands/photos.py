"""Commands that measure networks on labelled photos."""

import sys
from pathlib import Path
from typing import Any

import click

from unseen.commands.examples import Examples
from unseen.commands.network import network_of, network_options
from unseen.commands.values import PATH, labels_option, numbers


@click.command(
    cls=Examples,
    examples="""
    unseen measure photos --network mobilenetv2_100 --weights mobilenet.safetensors
    """,
)
@click.argument("photos", type=PATH)
@labels_option()
@network_options
def measure(photos: Path, labels: str, **options: Any) -> None:
    """Find the statistics and the padding that weights need.

    Embeds up to about 600 labelled photos with each candidate, and prints the accuracy and the options of
    the best.
    """
    from unseen.search import measurement

    network = network_of(**options)
    if network is None:
        raise click.UsageError("Name the network with --network.")
    sys.stdout.write(measurement(photos, network, labels))


@click.command(
    cls=Examples,
    examples="""
    unseen ladder photos ladder
    unseen ladder photos ladder --sizes 160,224 --loss arcface --json
    unseen ladder photos ladder --groups groups.csv
    """,
)
@click.argument("photos", type=PATH)
@click.argument("output", type=PATH)
@labels_option()
@network_options
@click.option(
    "--sizes",
    default="128,224",
    show_default=True,
    callback=numbers,
    help="Pixels per side that are compared. --size compares one.",
)
@click.option(
    "--groups",
    type=PATH,
    help="A CSV with the columns label and group. Classes of a group are not divided between training and "
    "test.",
)
@click.option(
    "--test-share",
    type=click.FloatRange(0, 1, True, True),
    default=0.5,
    show_default=True,
    help="Of the classes.",
)
@click.option(
    "--loss",
    type=click.Choice(("nsoftmax", "cosface", "arcface")),
    default="nsoftmax",
    show_default=True,
    help="Of the linear layer.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the split of classes.")
@click.option("--ship", is_flag=True, help="Train the written linear layer on all labelled classes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def ladder(
    photos: Path,
    output: Path,
    labels: str,
    sizes: tuple[int, ...],
    groups: Path | None,
    test_share: float,
    loss: str,
    seed: int,
    ship: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure what pays on labelled photos: image size, and a linear layer on frozen features.

    Half of the classes are test classes, which choose nothing. Held-out training classes choose the rung.
    OUTPUT is a directory: `model` is the chosen model, `features` are the features of the photos, which a
    second call uses again. The network runs once for each size.
    """
    from unseen.ladder import measured_rungs

    network = network_of(**options)
    sizes = (options["size"],) if options["size"] else sizes
    sys.stdout.write(
        measured_rungs(photos, output, labels, network, sizes, groups, test_share, loss, seed, ship, as_json)
    )
