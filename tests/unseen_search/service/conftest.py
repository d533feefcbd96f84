"""A catalog of drawn products, and the service that answers from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.photos import save_model, save_products
from tests.unseen_search.service.running import PRODUCTS, Server
from unseen_search.catalog import build


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_products(tmp_path_factory.mktemp("photos"), PRODUCTS, each=3)


@pytest.fixture(scope="session")
def catalog(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("catalog")
    build(photos, root / "catalog", save_model(root / "model", 1), labels="folders", processes=1)
    return root / "catalog"


@pytest.fixture(scope="module")
def server(catalog: Path) -> Iterator[Server]:
    with Server(catalog, largest_photo=100_000) as started:
        yield started
