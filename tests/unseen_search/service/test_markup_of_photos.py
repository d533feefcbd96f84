"""Folders and photos whose names are markup, in each page of the search, opened in a browser."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.packages import require_browser
from tests.photos import save_model, save_products
from tests.unseen_search.service.running import Server
from unseen_search.catalog.thresholds import Asked
from unseen_search.indexing import write_catalog
from unseen_search.search import find_photos

MARKUP = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'<&lt;script>"


def seen(browser: Any, address: str, photo: Path | None = None) -> str:
    """The text of a page, after a search for `photo` in it. No element and no script is of the names."""
    page = browser.new_page()
    page.goto(address, wait_until="load")
    if photo is not None:
        page.set_input_files("input[type=file]", str(photo))
        page.locator("ol img").nth(5).wait_for()
    assert page.locator("[onerror]").count() == page.locator("img[src='x']").count() == 0
    assert page.title() != "ran"
    text = str(page.inner_text("body"))
    page.close()
    return text


@pytest.mark.slow
def test_no_name_of_a_photo_becomes_an_element_or_runs_a_script(tmp_path: Path) -> None:
    executable = require_browser()
    from playwright.sync_api import sync_playwright

    from tests.report.test_browser import FLAGS

    photos = save_products(tmp_path / "photos", 2, each=3)
    product, photo = photos / MARKUP, photos / MARKUP / f"{MARKUP}.png"
    (photos / "product 00").rename(product)
    (product / "0.png").rename(photo)
    shutil.copy(photo, product / "copy.png")
    catalog, model = tmp_path / "catalog", save_model(tmp_path / "model", 1)
    matches, duplicates = tmp_path / "matches.html", tmp_path / "duplicates.html"
    write_catalog(
        photos, catalog, model, kind=None, labels="folders", skip_damaged=False, duplicates_html=duplicates
    )
    find_photos(catalog, [photo], 6, matches, Asked(), as_json=False)
    with Server(catalog) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        addresses = {matches.as_uri(): None, duplicates.as_uri(): None}
        for address, query in (addresses | {f"http://127.0.0.1:{server.port}/": photo}).items():
            assert MARKUP in seen(browser, address, query), address
        browser.close()
