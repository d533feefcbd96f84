"""A table of claims on a tiny network, and drawn photos."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.photos import save_products
from unseen.experiments.claims.claim import claims
from unseen.networks.published_network import timm

TINY = """
networks: {small: {name: test_resnet.r160_in1k, size: 64}, other: {name: test_resnet.r160_in1k, size: 64}}
setting: {training.iterations: 2, batch.classes: 4}
arms:
  average: {like: ms, dim: 8, pooling.name: average}
  max: {like: ms, dim: 8, pooling.name: max}
  untrained: {like: ms, dim: 8, training.iterations: 0}
claims:
  pooling:
    {paper: gsp, item: table 2, statement: max over average, first: average, second: max,
     networks: [small, other]}
  decay:
    {paper: crt, item: table 2, statement: less decay, first: untrained, second: average,
     metric: spectral_decay, expects: less, networks: [small]}
  elsewhere:
    {paper: crt, item: table 2, statement: not available, first: average, second: max, networks: [other]}
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "claims.yaml").write_text(TINY)
    content = claims(tmp_path / "claims.yaml")
    monkeypatch.setattr("unseen.cli.claims.claims", lambda: content)
    save_products(tmp_path / "photos", 20, 3)
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "w.safetensors")
    yield tmp_path
    claims.cache_clear()
