"""The commands `unseen index` and `unseen find`."""

import json
from pathlib import Path

import pytest

from pipeline.catalog import Catalog
from pipeline.index.kinds import KINDS, Hnsw
from tests.photos import COUNT, save_model, save_photos
from unseen import cli


def test_index_and_find_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, catalog = save_photos(tmp_path / "photos"), tmp_path / "catalog"
    model = save_model(tmp_path / "model", 1)

    def run(*arguments: object) -> str:
        cli.main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    assert run("index", photos, catalog, "--model", model) == f"{catalog}: {COUNT} pictures\n"
    query = photos / "shelf 2/schön 2.jpg"
    lines = run("find", catalog, query, "-k", 3, "--page", tmp_path / "found.html").splitlines()
    assert lines[0] == str(query)
    assert lines[1].split(None, 2) == ["1", "1.000", str(query)]
    assert len(lines) == 4
    run("index", photos, catalog, "--index", "hnsw")
    assert Catalog(catalog).index.setting == Hnsw()
    (photos / "shelf 1/deep/schön 1.jpg").unlink()
    run("find", catalog, query, "-k", COUNT, "--page", tmp_path / "found.html")
    html = (tmp_path / "found.html").read_text(encoding="utf-8")
    assert html.count("<img") == COUNT, "the query and all pictures but one"
    assert html.count("file is missing") == 1
    assert 'src="data:image/jpeg;base64,' in html
    assert "http" not in html
    assert json.loads((catalog / "catalog.json").read_text())["pictures"] == COUNT
    with pytest.raises(SystemExit) as ended:
        run("find", catalog, photos / "nothing.jpg")
    assert ended.value.code == 1
    assert "nothing.jpg cannot be read" in capsys.readouterr().err


def test_the_command_lists_every_kind_of_index() -> None:
    assert set(cli.INDEX_KINDS) == set(KINDS)
