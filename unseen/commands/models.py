"""The command that exports a model."""

import sys
from pathlib import Path

import click

from unseen.commands.examples import Examples
from unseen.commands.values import PATH


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
