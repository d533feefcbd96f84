"""A training from a checkpoint reports the hash of the file, and warns that DVC does not track it."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.training.jobs import CLASSES, IMAGES, job, recipe
from unseen.methods.build import initial_method
from unseen.training import loop
from unseen.training.job import note_unwatched_checkpoint


@pytest.mark.slow
def test_the_recipe_beside_the_weights_has_the_hash_of_the_checkpoint(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    donor = initial_method(recipe("baseline"), CLASSES, CLASSES * IMAGES, 1).backbone.network
    save_file(
        {name: value.contiguous() for name, value in donor.state_dict().items()}, root / "start.safetensors"
    )
    settings = recipe("baseline", backbone={"checkpoint": "start.safetensors"}, training={"iterations": 2})
    outputs = job(root, settings).outputs
    assert outputs is not None
    loop.train(job(root, settings), 0, 1, torch.device("cpu"))
    content = json.loads((outputs.model / "recipe.json").read_text(encoding="utf-8"))
    assert (
        content["checkpoint_sha256"] == hashlib.sha256((root / "start.safetensors").read_bytes()).hexdigest()
    )
    assert content["recipe"]["backbone"]["checkpoint"] == "start.safetensors"

    capsys.readouterr()
    note_unwatched_checkpoint(settings)
    expected = (
        "note: DVC does not watch start.safetensors. After a change there: dvc repro -f -s resolve && "
        "dvc repro\n"
    )
    assert capsys.readouterr().err == expected


def test_without_a_checkpoint_there_is_no_message(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note_unwatched_checkpoint(recipe("baseline"))
    assert capsys.readouterr().err == ""
