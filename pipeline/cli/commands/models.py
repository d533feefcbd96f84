"""Commands that export a model and the vectors of a catalog."""

import sys
from pathlib import Path

import click

from unseen.cli.commands.examples import Examples
from unseen.cli.commands.values import PATH


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
    from unseen_search.catalog.catalog import ABOUT, MODEL
    from unseen_search.catalog.export_model import export_model as export
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
