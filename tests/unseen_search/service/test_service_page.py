"""The page of the service in a browser."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.packages import require_browser
from tests.unseen_search.service.running import Server
from unseen_search.catalog.thresholds import Asked


def wait_for(page: Any, condition: str) -> None:
    """Waits until an expression is true in the page, whose policy forbids the polling of Playwright."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


@pytest.mark.slow
def test_the_page_shows_the_matches_of_a_photo_and_the_regions_of_one(catalog: Path, photos: Path) -> None:
    executable = require_browser()
    from playwright.sync_api import sync_playwright

    from tests.report.test_browser import FLAGS

    with Server(catalog, asked=Asked(0.55)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.locator("#threshold:has-text('An answer needs a score of')").wait_for()
        page.set_input_files("input[type=file]", str(photos / "product 05/2.png"))
        page.locator("ol img").nth(11).wait_for()
        wait_for(page, "[...document.images].every(image => image.naturalWidth > 0)")
        assert "product 05" in page.inner_text("#status")
        wait_for(page, "document.getElementById('regions').textContent.startsWith('Red regions add')")
        drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(value => value)"
        second = page.locator("ol .map").nth(1)
        for holder, has_map in (("#photo", True), ("ol li:first-child", True), ("ol li:nth-child(2)", False)):
            assert page.eval_on_selector(f"{holder} canvas", drawn) == has_map
        second.click()
        wait_for(page, f"({drawn})(document.querySelectorAll('ol canvas')[1])")
        assert second.get_attribute("aria-pressed") == "true"
        assert not page.eval_on_selector("ol li:first-child canvas", drawn)
        assert "product 05/2.png" in page.inner_text("ol li:first-child")
        text = {"name": "x.jpg", "mimeType": "image/jpeg", "buffer": b"no picture"}
        page.set_input_files("input[type=file]", text)
        page.locator("#answer").wait_for(state="hidden")
        assert "cannot be read as a picture" in page.inner_text("#status")
        assert [line for line in problems if "422" not in line] == []
        browser.close()
