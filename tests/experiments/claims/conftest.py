"""A table of claims and one of studies on a tiny network, and drawn photos."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.photos import save_products
from unseen.experiments.claims.claim import claims
from unseen.experiments.claims.frozen_study import frozen_studies
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

STUDY = """
irt-table-5:
  networks: [small]
  rows: irt-table-5-deit-s-beta-0-1-
  recipe: {dim: 8, pooling.name: average}
  reference: irt-table-5-deit-s-beta-0-1-lambda-0-0
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "claims.yaml").write_text(TINY)
    (tmp_path / "studies.yaml").write_text(STUDY)
    content = claims(tmp_path / "claims.yaml")
    for module in ("cli.claims", "experiments.claims.frozen_study"):
        monkeypatch.setattr(f"unseen.{module}.claims", lambda: content)
    studies = frozen_studies(tmp_path / "studies.yaml")
    monkeypatch.setattr("unseen.cli.claims.frozen_studies", lambda: studies)
    save_products(tmp_path / "photos", 20, 3)
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "w.safetensors")
    yield tmp_path
    claims.cache_clear()
    frozen_studies.cache_clear()
