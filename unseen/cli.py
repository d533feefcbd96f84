"""The command `unseen` and its subcommands.

Subcommands of the graph (`run`, `study`, `clean`, `recipe`, `data`) work in the directory of the project. The
others (`index`, `measure`, `ladder`, `claims`, `find`, `serve`, `evaluate`, `export-model`, `doctor`) need no
graph; their paths are relative to the current directory.

Modules are imported by the subcommand that needs them: `unseen --help` imports neither torch nor FAISS.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.runtime.stage import ROOT, report_errors

if TYPE_CHECKING:
    from pipeline.methods.pretrained import Network

INDEX_KINDS = ("flat", "ivf", "ivf_pq", "hnsw")  # those of pipeline.index.kinds, which imports FAISS
SHELLS = ("bash", "zsh", "fish")
_PATH = click.Path(path_type=Path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a subcommand and exits with its status. A UserError prints its message and exits with status 1, a
    mistake in the arguments with status 2."""
    try:
        with report_errors():
            status = command.main(arguments, prog_name="unseen", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.Abort:
        raise SystemExit(130) from None
    if status:
        raise SystemExit(status)


class _Examples(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *arguments: object, examples: str = "", **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")


@click.group(
    name="unseen", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="unseen", message="%(version)s")
def command() -> None:
    """Deep metric learning, evaluated on classes that were not seen in training."""


def _datasets(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return _recipe_names("datasets", incomplete)


def _methods(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return _recipe_names("methods", incomplete)


def _recipe_names(kind: str, incomplete: str) -> list[str]:
    """The published recipes whose names begin with `incomplete`."""
    names = sorted(path.stem for path in (ROOT / "pipeline/recipes" / kind).glob("*.yaml"))
    return [name for name in names if name.startswith(incomplete) and not name.startswith("_")]


@command.command(
    cls=_Examples,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    examples="""
    unseen run                       every stage that is missing or changed
    unseen run -j 4                  up to four stages at a time
    unseen run -f train@parts-ms-0   one stage, again
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
def run(arguments: tuple[str, ...], jobs: int | None) -> int:
    """Run the stages that are missing or changed, and print the result.

    It is `dvc repro` with the same arguments, and the same results in parallel. TARGETS are stages, such as
    train@parts-ms-0; default: all.
    """
    from pipeline.scheduling.run import run as run_graph

    os.chdir(ROOT)
    return run_graph(arguments, jobs)


def _studies(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from pipeline.studies.catalogue import studies

    os.chdir(ROOT)
    return [name for name in studies() if name.startswith(incomplete)]


class _Lists(_Examples):
    """A command whose repeatable options also take several values: `--seeds 0 1` is `--seeds 0 --seeds 1`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        repeatable = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.multiple
            for name in parameter.opts
        }
        expanded: list[str] = []
        option, values = "", 0
        for argument in args:
            if argument.startswith("-"):
                option, values = argument if argument in repeatable else "", 0
            elif option:
                values += 1
                expanded += [option] if values > 1 else []
            expanded.append(argument)
        return super().parse_args(ctx, expanded)


@command.command(
    cls=_Lists,
    examples="""
    unseen study --list                                   every table and figure, with its state
    unseen study crt-table-8 --mini                       its rows on the built-in set
    unseen study crt-table-8 --datasets cub --seeds 0 1   the table, with two seeds
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
@click.option("-j", "--jobs", type=click.IntRange(1), help="As in `unseen run`.")
def study(
    name: str | None,
    datasets: tuple[str, ...],
    seeds: tuple[int, ...],
    mini: bool,
    listed: bool,
    no_run: bool,
    jobs: int | None,
) -> int:
    """Train the rows of a table or figure, and show them beside the printed numbers.

    Sets run.datasets, run.methods and run.seeds in params.yaml to the rows of STUDY, and runs the graph. Rows
    that are trained already are not trained again.
    """
    from unseen import study as studies

    os.chdir(ROOT)
    if listed or name is None:
        sys.stdout.write(studies.listing())
        return 0
    if mini and datasets:
        raise click.UsageError("--mini is the built-in set: leave out --datasets.")
    sys.stdout.write(studies.select(name, datasets, seeds, mini))
    sys.stdout.flush()
    if no_run:
        return 0
    from pipeline.scheduling.run import run as run_graph

    return run_graph((), jobs)


@command.command(
    cls=_Examples,
    examples="""
    unseen clean          list, and ask
    unseen clean --yes    remove without a question
    """,
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--states", is_flag=True, help="Also remove the states of unfinished trainings and sweeps.")
def clean(yes: bool, states: bool) -> None:
    """List what takes space; remove what no commit needs.

    Removes files of DVC's cache that neither the workspace nor a commit nor an experiment uses, and logs of
    parallel runs.
    """
    from unseen import clean as cleaning

    os.chdir(ROOT)
    sys.stdout.write("\n".join([*cleaning.clean(yes, states), ""]))


@command.command(
    cls=_Examples,
    examples="""
    unseen recipe parts gsp
    unseen recipe parts gsp --diff HEAD
    """,
)
@click.argument("dataset", shell_complete=_datasets)
@click.argument("method", shell_complete=_methods)
@click.option(
    "--diff",
    "revision",
    metavar="REV",
    help="Print the differences from the recipe and code of a git revision.",
)
def recipe(dataset: str, method: str, revision: str | None) -> None:
    """Print every value of a recipe and the line that sets it."""
    from unseen import recipe as recipes

    os.chdir(ROOT)
    text = (
        recipes.recipe(dataset, method) if revision is None else recipes.difference(dataset, method, revision)
    )
    sys.stdout.write(f"{text}\n")


@command.command(
    cls=_Examples,
    examples="""
    unseen data cub
    unseen data sop /data/sop
    """,
)
@click.argument("dataset", shell_complete=_datasets)
@click.argument("directory", required=False)
def data(dataset: str, directory: str | None) -> None:
    """Download the published files of a data set.

    A second call resumes; hashes are verified. DIRECTORY is relative to the project; default:
    data/raw/DATASET.
    """
    from pipeline.ingest.files.download import fetch

    os.chdir(ROOT)
    fetch(dataset, directory or f"data/raw/{dataset}")


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
    from pipeline.models.published_network import timm

    names: list[str] = timm.list_models(f"{incomplete}*", pretrained=True)
    return names


def _network_options(function: Any) -> Any:
    """Adds the options that describe a published network."""
    options = (
        click.option(
            "--network",
            "name",
            metavar="NAME",
            shell_complete=_networks,
            help="A network of timm with its published head and preprocessing. Its weights are "
            "downloaded, unless "
            "--weights names a file.",
        ),
        click.option(
            "--weights", type=_PATH, help="A .safetensors or weights-only .pth file with the weights."
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


def _network(
    name: str | None,
    weights: Path | None,
    size: int | None,
    statistics: str | None,
    arguments: dict[str, Any],
) -> "Network | None":
    """The network of the options of `_network_options`; None without any."""
    if name is None:
        if weights or statistics or arguments:
            raise click.UsageError("--weights, --statistics and --argument need --network.")
        if size is None:
            return None
    from pipeline.methods.pretrained import Network, default_network

    if name is None:
        return replace(default_network(), size=size)
    return Network(name, weights, size, statistics, arguments)


@command.command(
    cls=_Examples,
    examples="""
    unseen index photos catalog                                  the default network; again: an update
    unseen index photos catalog --network vit_base_patch16_siglip_256.v2_webli
    unseen index photos catalog --network vit_tiny_patch16_224.augreg_in21k_ft_in1k --weights vit.safetensors
    unseen index photos catalog --model data/models/folder/ms/0
    unseen index photos catalog --labels folders                 one folder per product
    unseen index photos catalog --duplicates copies.html         groups of near-duplicates
    unseen index photos catalog --index hnsw                     an approximate index
    """,
)
@click.argument("photos", type=_PATH)
@click.argument("catalog", type=_PATH)
@click.option(
    "--model",
    type=_PATH,
    help="Directory of a trained model, e.g. data/models/folder/ms/0. Default: that of the existing catalog.",
)
@_network_options
@click.option(
    "--index",
    "kind",
    type=click.Choice(INDEX_KINDS),
    help="Kind of index. Default: that of the existing catalog, otherwise flat.",
)
@click.option(
    "--labels",
    metavar="SOURCE",
    help="The product of each picture: `folders` (the name of its folder), a CSV with the columns path and "
    "label, or `none`. Default: as in the existing catalog, otherwise none.",
)
@click.option(
    "--duplicates",
    type=_PATH,
    metavar="PAGE",
    help="List groups of near-duplicates, and write them to this HTML file.",
)
@click.option("--skip-damaged", is_flag=True, help="Exclude unreadable pictures instead of stopping.")
def index(
    photos: Path,
    catalog: Path,
    model: Path | None,
    kind: str | None,
    labels: str | None,
    duplicates: Path | None,
    skip_damaged: bool,
    **options: Any,
) -> None:
    """Build or update the catalog of a folder of pictures.

    PHOTOS is a folder with any subfolders. CATALOG is the directory to write. Only new pictures are embedded;
    a killed build continues.

    A new catalog without --model and --network uses EfficientNet-Lite0, whose weights (Apache-2.0) are in the
    extra `lite0`. A stronger network is vit_base_patch16_siglip_256.v2_webli (SigLIP 2, Apache-2.0, 370 MB).
    The licence of the weights is written into CATALOG/model/network.json.
    """
    from unseen.search import write_catalog

    network = _network(**options)
    if model is not None and network is not None:
        raise click.UsageError("Name either --model or --network.")
    write_catalog(photos, catalog, model or network, kind, labels, skip_damaged, duplicates)


@command.command(
    cls=_Examples,
    examples="""
    unseen measure photos --network mobilenetv2_100 --weights mobilenet.safetensors
    """,
)
@click.argument("photos", type=_PATH)
@click.option(
    "--labels",
    default="folders",
    show_default=True,
    metavar="SOURCE",
    help="`folders`, or a CSV with the columns path and label.",
)
@_network_options
def measure(photos: Path, labels: str, **options: Any) -> None:
    """Find the statistics and the padding that weights need.

    Embeds up to about 600 labelled photos with each candidate, and prints the accuracy and the options of
    the best.
    """
    from unseen.search import measurement

    network = _network(**options)
    if network is None:
        raise click.UsageError("Name the network with --network.")
    sys.stdout.write(measurement(photos, network, labels))


@command.command(
    "export-model",
    cls=_Examples,
    examples="""
    unseen export-model data/models/folder/ms/0 exported
    unseen export-model catalog exported                   the model of a catalog
    """,
)
@click.argument("model", type=_PATH)
@click.argument("output", type=_PATH)
def export_model(model: Path, output: Path) -> None:
    """Write a model as ONNX with its preprocessing and a model card.

    MODEL is the directory of a model, or a catalog. OUTPUT is a new directory. ONNX Runtime must agree with
    PyTorch to 1e-4. Needs the extra `onnx`.
    """
    from pipeline.catalog.catalog import ABOUT, MODEL
    from pipeline.catalog.export_model import export_model as export
    from pipeline.runtime.errors import UserError

    if output.exists():
        raise UserError(f"{output} exists.", "Choose another directory, or remove it.")
    difference = export(model / MODEL if (model / ABOUT).is_file() else model, output)
    sys.stdout.write(f"{output}: model.onnx, preprocessing.json, README.md; difference {difference:.1g}\n")


def _numbers(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    """Positive numbers separated by commas."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"{text!r} is no list of positive numbers, such as 1,2,4,8.")
    return numbers


@command.command(
    cls=_Examples,
    examples="""
    unseen ladder photos ladder
    unseen ladder photos ladder --sizes 160,224 --loss arcface --json
    unseen ladder photos ladder --groups groups.csv
    unseen ladder photos ladder --head proxy_anchor
    """,
)
@click.argument("photos", type=_PATH)
@click.argument("output", type=_PATH)
@click.option(
    "--labels",
    default="folders",
    show_default=True,
    metavar="SOURCE",
    help="`folders` (the name of the folder of a photo), or a CSV with the columns path and label.",
)
@_network_options
@click.option(
    "--sizes",
    default="128,224",
    show_default=True,
    callback=_numbers,
    help="Pixels per side that are compared. --size compares one.",
)
@click.option(
    "--groups",
    type=_PATH,
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
@click.option(
    "--head",
    default="gsp",
    show_default=True,
    metavar="METHOD",
    help="Pooling, projection and loss of the rung `head`: a method of the recipes, such as gsp, ms, crt, "
    "proxy_anchor; none omits the rung.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the split of classes.")
@click.option("--ship", is_flag=True, help="Train the written layer or head on all labelled classes.")
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
    seed: int,
    ship: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure what pays on labelled photos: image size, and a linear layer or a head on a frozen network.

    Half of the classes are test classes, which choose nothing. Held-out training classes choose the rung.
    OUTPUT is a directory: `model` is the chosen model, `features` are the features and maps of the photos,
    which a second call uses again. The network runs once for each size, and once for the maps.
    """
    from unseen.ladder import measured_rungs

    network = _network(**options)
    sizes = (options["size"],) if options["size"] else sizes
    method = None if head == "none" else head
    sys.stdout.write(
        measured_rungs(
            photos, output, labels, network, sizes, groups, test_share, loss, method, seed, ship, as_json
        )
    )


def _files_by_name(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    """NAME=FILE values."""
    pairs = [value.partition("=") for value in values]
    for (name, separator, path), value in zip(pairs, values, strict=True):
        if not (name and separator and path):
            raise click.BadParameter(f"{value!r} is no NETWORK=FILE, such as vit-tiny=vit.safetensors.")
    return {name: Path(path) for name, _, path in pairs}


@command.command(
    cls=_Examples,
    examples="""
    unseen claims --list                                           every claim, with the committed verdict
    unseen claims --photos grocery --weights vit-tiny=vit.safetensors
    unseen claims irt-koleo crt-over-ms --photos photos --download --seeds 3
    """,
)
@click.argument("names", nargs=-1, metavar="[CLAIM]...")
@click.option("--list", "listed", is_flag=True, help="List the claims.")
@click.option("--photos", type=_PATH, help="Photos in one folder per class.")
@click.option("--output", type=_PATH, default=Path("claims"), show_default=True, help="A directory.")
@click.option(
    "--weights",
    multiple=True,
    metavar="NETWORK=FILE",
    callback=_files_by_name,
    help="Weights of mobilenetv2, vit-tiny or lite0. Those of lite0 are in the extra `lite0`.",
)
@click.option("--download", is_flag=True, help="Download the weights of the other networks.")
@click.option(
    "--groups",
    type=_PATH,
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
    photos: Path | None,
    output: Path,
    weights: dict[str, Path],
    download: bool,
    groups: Path | None,
    seeds: int,
    at_most: int,
) -> None:
    """Test claims of the papers on photos: paired comparisons of heads on a frozen network.

    CLAIM is a name of --list; without one, all claims are computed. OUTPUT keeps the maps of the networks and
    a record of each training, with which a second call continues. docs/claims.md states the rule of the
    verdict.
    """
    from unseen.claims import computed, listing

    if listed:
        sys.stdout.write(listing())
        return
    if photos is None:
        raise click.UsageError("--photos is missing: name a folder with one folder of photos per class.")
    sys.stdout.write(computed(names, photos, output, weights, groups, seeds, at_most, download))


def _share(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
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


@command.command(
    cls=_Examples,
    examples="""
    unseen find catalog new.jpg
    unseen find catalog new.jpg other.jpg -k 5 --page found.html
    unseen find catalog inbox --at-most-false 1% --json            every photo below a folder
    unseen find catalog --list paths.txt
    """,
)
@click.argument("catalog", type=_PATH)
@click.argument("photos", type=_PATH, nargs=-1, metavar="[PHOTO]...")
@click.option(
    "--list", "listed", type=_PATH, help="A text file with one path a line; - is the standard input."
)
@click.option("-k", default=10, show_default=True, help="Matches of each photo.")
@click.option(
    "--at-most-false",
    "share",
    metavar="SHARE",
    callback=_share,
    help="Answer `unknown` below the similarity at which at most this share of the photos of unknown "
    "products gets a match, e.g. 1%. The catalog needs labels.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--page", type=_PATH, help="Also write the matches to this HTML file.")
def find(
    catalog: Path,
    photos: tuple[Path, ...],
    listed: Path | None,
    k: int,
    share: float | None,
    as_json: bool,
    page: Path | None,
) -> None:
    """Find the most similar pictures of a catalog.

    PHOTO is a file or a folder. With labels, the matches are grouped by product, the product of the nearest
    picture first.
    """
    from unseen.search import find_photos, queries

    sys.stdout.write(find_photos(catalog, queries(photos, listed), k, page, share, as_json))


@command.command(
    cls=_Examples,
    examples="""
    unseen serve catalog                                    http://127.0.0.1:8000
    unseen serve catalog --at-most-false 1% --unknown-log unknown.jsonl
    UNSEEN_TOKEN=... unseen serve catalog --host 0.0.0.0    for other machines
    """,
)
@click.argument("catalog", type=_PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option(
    "--at-most-false", "share", metavar="SHARE", callback=_share, help="Answer `unknown`, as `unseen find`."
)
@click.option("--concurrent", type=click.IntRange(1), help="Photos embedded at once. [default: 2]")
@click.option("--unknown-log", type=_PATH, help="Append a JSON line for each unknown photo.")
def serve(
    catalog: Path, host: str, port: int, share: float | None, concurrent: int | None, unknown_log: Path | None
) -> None:
    """Serve a catalog: a page to drop photos on, and an HTTP interface.

    With UNSEEN_TOKEN in the environment, requests must present this token. Addresses of other machines need
    one.
    """
    from pipeline.service.settings import ServiceSettings
    from unseen.serve import serve as run_service

    values = {"at_most_false": share, "unknown_log": unknown_log}
    if concurrent is not None:
        values["concurrent"] = concurrent
    run_service(catalog, host, port, ServiceSettings.model_validate(values))


@command.command(
    cls=_Examples,
    examples="""
    unseen evaluate vectors.parquet
    unseen evaluate data/embeddings/parts/ms/0/test.arrow --json
    unseen evaluate vectors.npy --labels labels.txt --normalize
    unseen evaluate before.parquet after.parquet                   with differences, intervals and p values
    """,
)
@click.argument("embeddings", type=_PATH, nargs=-1, required=True, metavar="EMBEDDINGS [EMBEDDINGS]")
@click.option("--labels", type=_PATH, help="Labels of .npy files: .npy, or .txt with one label a line.")
@click.option(
    "--normalize", is_flag=True, help="Divide each vector by its length. Default: refuse other lengths."
)
@click.option("--recall-at", default="1,2,4,8", show_default=True, callback=_numbers, help="K of Recall@K.")
@click.option("--class-means", is_flag=True, help="Also average over classes instead of queries.")
@click.option(
    "--bootstrap",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Class resamples of an interval.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, True, True),
    default=0.95,
    show_default=True,
    help="Of an interval.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the resamples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def evaluate(
    embeddings: tuple[Path, ...],
    labels: Path | None,
    normalize: bool,
    recall_at: tuple[int, ...],
    class_means: bool,
    bootstrap: int,
    confidence: float,
    seed: int,
    as_json: bool,
) -> None:
    """Exact metrics of the vectors of any tool, with intervals.

    EMBEDDINGS is a Parquet or Arrow file with the columns `label` and `embedding`, optionally `row_id`,
    `is_query` and `is_gallery`; or a .npy file of shape (rows, dimensions) with --labels. Two files of the
    same rows are compared query by query.
    """
    if len(embeddings) > 2:
        raise click.UsageError(f"Expected one or two files, got {len(embeddings)}.")
    from pipeline.evaluation.external import Settings
    from unseen.evaluation import evaluation

    settings = Settings(recall_at, bootstrap, confidence, seed, class_means, normalize)
    sys.stdout.write(evaluation(embeddings, labels, settings, as_json))


@command.command()
def doctor() -> None:
    """Print versions, devices, pretrained weights and data sets.

    The weights and data sets are those of block `run` in params.yaml. The exit status is 1 if
    one of them is missing.
    """
    from unseen.doctor import examine

    os.chdir(ROOT)
    report, complete = examine()
    sys.stdout.write(report)
    if not complete:
        raise SystemExit(1)


@command.command(
    cls=_Examples,
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
    sys.stdout.write(kind(command, {}, "unseen", "_UNSEEN_COMPLETE").source() + "\n")
