import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.data.shard_writer import ShardWriter
from unseen.runtime.stage import ROOT


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Definitions:
    """The project's own params.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text((ROOT / "params.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    return Definitions(Params(Path("params.yaml")))


@pytest.fixture
def root(params: Definitions, tmp_path: Path) -> Path:
    """A project whose data set `parts` has eight train classes of six plain pictures."""
    directory = tmp_path / "data/shards/parts"
    directory.mkdir(parents=True)
    colours = np.random.default_rng(0).integers(0, 256, (8, 3), dtype=np.uint8)
    with ShardWriter(directory, [f"class {label}" for label in range(8)], shard_bytes=2**20) as writer:
        for label in range(8):
            for index in range(6):
                encoded = io.BytesIO()
                Image.fromarray(np.full((40, 44, 3), colours[label] // (index + 1), np.uint8)).save(
                    encoded, "PNG"
                )
                writer.add(
                    encoded.getvalue(), label, "train", f"class {label}/{index}.png", width=44, height=40
                )
        writer.finish({"dataset": "parts"})
    return tmp_path
