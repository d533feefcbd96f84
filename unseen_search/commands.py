"""The commands of the photo search, which the command line loads by name."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from unseen.cli.commands.examples import Examples
from unseen.cli.commands.network import network_of, network_options
from unseen.cli.commands.values import PATH, labels_option, share_of_text

if TYPE_CHECKING:
    from unseen_search.catalog.thresholds import Asked

INDEX_KINDS = ("flat", "ivf", "ivf_pq", "hnsw")  # those of unseen.evaluation.index.kinds, which imports FAISS


def threshold_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of the threshold."""
    options = (
        click.option(
            "--at-most-false",
            "share",
            metavar="SHARE",
            callback=share_of_text,
            help="Answer `unknown` below the score at which at most this share of the photos of unknown "
            "products gets an answer, e.g. 1%. Without labels the score is higher than necessary.",
        ),
        click.option(
            "--at-most-wrong",
            "wrong",
            metavar="SHARE",
            callback=share_of_text,
            help="Answer `unknown` below the score at which at most this share of the photos of known "
            "products gets a wrong product.",
        ),
        click.option(
            "--unknown",
            type=PATH,
            metavar="PHOTOS",
            help="A folder of photos of unknown products, further evidence for --at-most-false. Photos of "
            "one product are in a folder of their own.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    cls=Examples,
    examples="""
    unseen index photos catalog                                  the default network; again: an update
    unseen index photos catalog --network vit_base_patch16_siglip_256.v2_webli
    unseen index photos catalog --network vit_tiny_patch16_224.augreg_in21k_ft_in1k --weights vit.safetensors
    unseen index photos catalog --model data/models/folder/ms/0
    unseen index photos catalog --labels folders                 one folder per product
    unseen index photos catalog --duplicates copies.html         groups of near-duplicates
    unseen index photos catalog --index hnsw                     an approximate index
    unseen index photos catalog --workers 4 --precision bfloat16
    """,
)
@click.argument("photos", type=PATH)
@click.argument("catalog", type=PATH)
@click.option(
    "--model",
    type=PATH,
    help="Directory of a trained model, e.g. data/models/folder/ms/0. Default: that of the existing catalog.",
)
@network_options
@click.option(
    "--index",
    "kind",
    type=click.Choice(INDEX_KINDS),
    help="Kind of index. Default: that of the existing catalog, otherwise flat.",
)
@labels_option(None, ", or `none`. Default: as in the existing catalog, otherwise none.")
@click.option(
    "--duplicates",
    type=PATH,
    metavar="PAGE",
    help="List groups of near-duplicates, and write them to this HTML file.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Processes that embed, each on a GPU or with one thread of the CPU; the bytes of the catalog do not "
    "depend on N. Default: one for each GPU, otherwise one for each core and 128 new pictures, at most 8.",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    help="Of the network's products; auto: bfloat16 if the processor computes with it. Searches and updates "
    "use it too. Default: as in the existing catalog, otherwise float32.",
)
@click.option("--skip-damaged", is_flag=True, help="Exclude unreadable pictures instead of stopping.")
@click.option(
    "--onnx/--no-onnx",
    default=None,
    envvar="UNSEEN_ONNX",
    help="Also store the model as ONNX, with which `find` and `serve` start without PyTorch. Default: where "
    "the extra `onnx` is installed.",
)
@click.option("--remove", is_flag=True, help="Allow an update that removes more than 20% of the pictures.")
def index(
    photos: Path,
    catalog: Path,
    model: Path | None,
    kind: str | None,
    labels: str | None,
    duplicates: Path | None,
    skip_damaged: bool,
    remove: bool,
    onnx: bool | None,
    workers: int | None,
    precision: Literal["auto", "float32", "bfloat16"] | None,
    **options: Any,
) -> None:
    """Build or update the catalog of a folder of pictures.

    PHOTOS is a folder with any subfolders. CATALOG is the directory to write. Only new pictures are embedded;
    a killed build continues.

    A new catalog without --model and --network uses EfficientNet-Lite0, whose weights (Apache-2.0) are in the
    extra `lite0`. A stronger network is vit_base_patch16_siglip_256.v2_webli (SigLIP 2, Apache-2.0, 370 MB).
    The licence of the weights is written into CATALOG/model/network.json.
    """
    from unseen_search.indexing import write_catalog

    network = network_of(**options)
    if model is not None and network is not None:
        raise click.UsageError("Name either --model or --network.")
    write_catalog(
        photos,
        catalog,
        model=model or network,
        kind=kind,
        labels=labels,
        skip_damaged=skip_damaged,
        duplicates_html=duplicates,
        workers=workers,
        precision=precision,
        remove=remove,
        onnx=onnx,
    )


@click.command(
    cls=Examples,
    examples="""
    unseen find catalog new.jpg
    unseen find catalog new.jpg other.jpg -k 5 --page found.html
    unseen find catalog inbox --at-most-false 1% --json            every photo below a folder
    unseen find catalog --list paths.txt
    """,
)
@click.argument("catalog", type=PATH)
@click.argument("photos", type=PATH, nargs=-1, metavar="[PHOTO]...")
@click.option(
    "--list", "listed", type=PATH, help="A text file with one path a line; - is the standard input."
)
@click.option("-k", default=10, show_default=True, help="Matches of each photo.")
@threshold_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--page", type=PATH, help="Also write the matches to this HTML file.")
@click.option("--skip-damaged", is_flag=True, help="Exclude unreadable photos instead of stopping.")
def find(
    catalog: Path,
    photos: tuple[Path, ...],
    listed: Path | None,
    k: int,
    share: float | None,
    wrong: float | None,
    unknown: Path | None,
    as_json: bool,
    page: Path | None,
    skip_damaged: bool,
) -> None:
    """Find the products and the most similar pictures of a catalog.

    PHOTO is a file or a folder. With labels, the products are ordered by the rule that the build of the
    catalog chose. An unknown photo has candidates.
    """
    from unseen_search.search import find_photos, queries

    asked = _asked(share, wrong, unknown)
    found = find_photos(catalog, queries(photos, listed), k, page, asked, as_json, skip_damaged)
    sys.stdout.write(found)


@click.command(
    cls=Examples,
    examples="""
    unseen serve catalog                                    http://127.0.0.1:8000
    unseen serve catalog --at-most-false 1% --unknown-log unknown.jsonl
    UNSEEN_TOKEN=... unseen serve catalog --host 0.0.0.0    for other machines
    """,
)
@click.argument("catalog", type=PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@threshold_options
@click.option("--concurrent", type=click.IntRange(1), help="Photos embedded at once. [default: 2]")
@click.option(
    "--largest-pixels",
    type=click.IntRange(1),
    help="Width x height of a photo; larger ones are refused before they are decoded. [default: 64000000]",
)
@click.option("--unknown-log", type=PATH, help="Append a JSON line for each unknown photo.")
def serve(
    catalog: Path,
    host: str,
    port: int,
    share: float | None,
    wrong: float | None,
    unknown: Path | None,
    unknown_log: Path | None,
    **limits: int | None,
) -> None:
    """Serve a catalog: a page to drop photos on, and an HTTP interface.

    With UNSEEN_TOKEN in the environment, requests must present this token. Addresses of other machines need
    one.
    """
    from unseen_search.serve import serve as run_service
    from unseen_search.service.settings import ServiceSettings

    values: dict[str, Any] = {"asked": _asked(share, wrong, unknown), "unknown_log": unknown_log}
    values |= {name: value for name, value in limits.items() if value is not None}
    run_service(catalog, host, port, ServiceSettings.model_validate(values))


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
    from unseen_search.indexing import measurement

    network = network_of(**options)
    if network is None:
        raise click.UsageError("Name the network with --network.")
    sys.stdout.write(measurement(photos, network, labels))


@click.command(
    "export-model",
    cls=Examples,
    examples="""
    unseen export-model data/models/folder/ms/0 exported
    unseen export-model catalog exported                   the model of a catalog
    """,
)
@click.argument("model", type=PATH)
@click.argument("output", type=PATH)
@click.option(
    "--metrics",
    type=PATH,
    help="The accuracy in the model card: a file of data/metrics, of `unseen evaluate --json`, or "
    "ladder.json. Default: the file that belongs to MODEL by its place.",
)
def export_model(model: Path, output: Path, metrics: Path | None) -> None:
    """Write a model as ONNX and torch.export with its preprocessing and a model card.

    MODEL is the directory of a model, or a catalog. OUTPUT is a new directory. ONNX Runtime and the exported
    program must agree with PyTorch to 1e-4. Needs the extra `onnx`.
    """
    from unseen.runtime.errors import UserError
    from unseen_search.catalog.export_model import export_model as export
    from unseen_search.catalog.files import ABOUT, MODEL
    from unseen_search.catalog.model_card import accuracy_of, read_accuracy

    if output.exists():
        raise UserError(f"{output} exists.", "Choose another directory, or remove it.")
    accuracy = accuracy_of(model) if metrics is None else read_accuracy(metrics)
    differences = export(model / MODEL if (model / ABOUT).is_file() else model, output, accuracy)
    for file, difference in differences.items():
        sys.stdout.write(f"{output / file}: differs from PyTorch by at most {difference:.1g}\n")
    sys.stdout.write(f"{output}: also preprocessing.json and README.md, the model card\n")


@click.command(
    "export-vectors",
    cls=Examples,
    examples="""
    unseen export-vectors catalog vectors.parquet
    unseen evaluate vectors.parquet                of a catalog with labels
    """,
)
@click.argument("catalog", type=PATH)
@click.argument("output", type=PATH)
def export_vectors(catalog: Path, output: Path) -> None:
    """Write the vectors of a catalog as Parquet.

    OUTPUT has the columns row_id, path, label and embedding (unit length); a missing label is null. `unseen
    evaluate` reads it if every picture has a label.
    """
    from unseen_search.catalog.catalog import Catalog
    from unseen_search.catalog.export_vectors import export_vectors as export

    count = export(Catalog(catalog), output)
    sys.stdout.write(f"{output}: {count:,} vectors\n")


COMMANDS = (index, find, serve, measure, export_model, export_vectors)


def _asked(share: float | None, wrong: float | None, unknown: Path | None) -> "Asked":
    """What `threshold_options` ask."""
    from unseen_search.catalog.thresholds import Asked

    if unknown is not None and share is None and wrong is None:
        raise click.UsageError("--unknown needs --at-most-false or --at-most-wrong.")
    return Asked(share, wrong, unknown)
