"""Commands that compare networks and methods on labelled photos."""

import sys
from pathlib import Path
from typing import Any

import click

from unseen.cli.commands.examples import Examples
from unseen.cli.commands.network import network_of, network_options
from unseen.cli.commands.values import PATH, files_by_name, labels_option, numbers


@click.command(
    cls=Examples,
    examples="""
    unseen ladder photos ladder
    unseen ladder photos ladder --sizes 160,224 --loss arcface --json
    unseen ladder photos ladder --groups groups.csv
    unseen ladder photos ladder --head proxy_anchor --no-adapt
    unseen ladder photos ladder --other birds
    unseen ladder photos ladder --ship          a model of all labelled classes
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
    help="Of the rungs `linear` and `adapt`.",
)
@click.option(
    "--head",
    default="gsp",
    show_default=True,
    metavar="METHOD",
    help="Pooling, projection and loss of the rung `head`: a method of the recipes, such as gsp, ms, crt, "
    "proxy_anchor; none omits the rung.",
)
@click.option(
    "--adapt/--no-adapt",
    default=True,
    show_default=True,
    help="With the rung `adapt`, which trains the last layers of the network: minutes.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the split of classes.")
@click.option(
    "--ship",
    is_flag=True,
    help="Train the chosen rung on all labelled classes for the length that held-out classes chose. "
    "The table states the accuracy measured in the comparison, not that of this model.",
)
@click.option(
    "--other",
    type=PATH,
    help="Labelled photos of another kind. Each rung is also measured on them: what training loses there.",
)
@click.option(
    "--other-labels",
    default="folders",
    show_default=True,
    metavar="folders|FILE.csv",
    help="Labels of the photos of --other.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def ladder(
    photos: Path,
    output: Path,
    labels: str,
    sizes: tuple[int, ...],
    groups: Path | None,
    test_share: float,
    loss: str,
    head: str,
    adapt: bool,
    seed: int,
    ship: bool,
    other: Path | None,
    other_labels: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure what improves accuracy on labelled photos: size, linear layer, head, trained last layers.

    Half of the classes are test classes, which choose nothing. Held-out training classes choose the rung.
    OUTPUT is a directory: `model` is the chosen model, `features` are the features and maps of the photos,
    which a second call uses again. The network runs once for each size, and three times for the best size.
    On one core, 1,600 photos of 128 pixels take 1 to 2 minutes without `adapt` and 5 with it; 800 photos of
    both default sizes take 8.
    """
    from unseen.cli.ladder import groups_of, measured_rungs
    from unseen.experiments.ladder.ladder import LadderPlan
    from unseen.frozen.network import default_network

    plan = LadderPlan(
        network_of(**options) or default_network(),
        (options["size"],) if options["size"] else sizes,
        test_share=test_share,
        seed=seed,
        group_of=None if groups is None else groups_of(groups),
        loss=loss,
        head=None if head == "none" else head,
        adapt=adapt,
        ship=ship,
        other=other,
        other_labels=other_labels,
    )
    sys.stdout.write(measured_rungs(photos, output, plan, labels, as_json))


@click.command(
    cls=Examples,
    examples="""
    unseen claims --list                                           every claim, with the committed verdict
    unseen claims --photos grocery --weights vit-tiny=vit.safetensors
    unseen claims irt-koleo crt-over-ms --photos photos --download --seeds 3
    unseen claims --photos grocery --photos caltech --whole -j 2    whole networks, trained on two sets
    """,
)
@click.argument("names", nargs=-1, metavar="[CLAIM]...")
@click.option("--list", "listed", is_flag=True, help="List the claims.")
@click.option(
    "--photos",
    type=PATH,
    multiple=True,
    help="Photos in one folder per class; with --whole several sets, over which a verdict holds.",
)
@click.option(
    "--whole",
    "is_whole",
    is_flag=True,
    help="Train whole networks that start from their published weights, in place of heads: hours.",
)
@click.option(
    "--splits",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="With --whole: divisions of the classes of each set.",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(1), default=1, show_default=True, help="With --whole: processes."
)
@click.option("--output", type=PATH, default=Path("claims"), show_default=True, help="A directory.")
@click.option(
    "--weights",
    multiple=True,
    metavar="NETWORK=FILE",
    callback=files_by_name,
    help="Weights of mobilenetv2, vit-tiny or lite0. Those of lite0 are in the extra `lite0`.",
)
@click.option("--download", is_flag=True, help="Download the weights of the other networks.")
@click.option(
    "--groups",
    type=PATH,
    help="A CSV with the columns label and group, for a second split in which no group is divided.",
)
@click.option("--seeds", type=click.IntRange(2), default=5, show_default=True, help="Trainings of each arm.")
@click.option(
    "--at-most",
    type=click.IntRange(2),
    default=40,
    show_default=True,
    help="Photos of a class that are used.",
)
def claims(
    names: tuple[str, ...],
    listed: bool,
    photos: tuple[Path, ...],
    is_whole: bool,
    splits: int,
    jobs: int,
    output: Path,
    weights: dict[str, Path],
    download: bool,
    groups: Path | None,
    seeds: int,
    at_most: int,
) -> None:
    """Test claims of the papers: paired comparisons of heads on a frozen network or of whole networks, on
    photos.

    CLAIM is a name of --list; without one, all claims are computed. OUTPUT keeps the maps of the networks and
    a record of each training, with which a second call continues. docs/claims.md states the rule of the
    verdict.
    """
    from unseen.cli.claims import computed, listing

    if listed:
        sys.stdout.write(listing())
        return
    if not photos:
        raise click.UsageError("--photos is missing: name a folder with one folder of photos per class.")
    if is_whole and groups is not None:
        raise click.UsageError("--whole has divisions of its own: leave out --groups.")
    if not is_whole and len(photos) > 1:
        raise click.UsageError("heads on a frozen network take one --photos; --whole takes several.")
    sys.stdout.write(
        computed(
            names,
            photos=photos,
            output=output,
            weights=weights,
            groups=groups,
            seeds=seeds,
            at_most=at_most,
            download=download,
            splits=splits if is_whole else None,
            jobs=jobs,
        )
    )
