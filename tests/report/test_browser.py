"""The page in a browser: it renders, loads no resource, fits a laptop and a phone; all pictures decode."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.packages import require_browser
from unseen.report.page import build
from unseen.report.report_data import ReportData

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = pytest.mark.slow

TOO_WIDE = """() => [...document.querySelectorAll('body *')].filter(e => {
    const box = e.getBoundingClientRect();
    return (box.right > innerWidth + 1 || box.left < -1) && !e.closest('.scroll, nav, svg');
}).map(e => e.outerHTML.slice(0, 80))"""
CLIPPED = """() => [...document.querySelectorAll('section *')].filter(e =>
    e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0
    && getComputedStyle(e).overflowX === 'visible' && getComputedStyle(e).display !== 'inline'
    && !e.closest('.scroll, svg')).map(e => e.outerHTML.slice(0, 80))"""


DECODED = """async () => {
    const all = [...document.images];
    await Promise.all(all.map(image => image.decode()));
    return all.map(image => image.naturalWidth);
}"""
CONTRAST = """() => {
    const linear = x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    const light = c => {
        const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(x => linear(x / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = e => {
        const colour = getComputedStyle(e).backgroundColor;
        return colour === 'rgba(0, 0, 0, 0)' ? ground(e.parentElement) : colour;
    };
    const text = document.querySelectorAll(
        'h1, p, .note, th, td, .mark, summary, dt, dd, a, figcaption, svg.chart text');
    return [...text].map(e => {
        const style = getComputedStyle(e), ink = e.tagName === 'text' ? style.fill : style.color;
        const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
        return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 60)];
    }).sort((x, y) => x[0] - y[0])[0];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    executable = require_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(html: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(html, encoding="utf-8")
    return path


FITTING = """() => [...document.querySelectorAll('table.results, table.seeds, table.pairs')].map(table => [
    [...table.querySelectorAll('thead th')].filter(e => e.offsetWidth > 0).length,
    table.closest('.scroll').scrollWidth - table.closest('.scroll').clientWidth,
    table.querySelectorAll('.range').length > 0
        && [...table.querySelectorAll('td, th')].every(e => e.scrollWidth <= e.clientWidth + 1),
])"""


REST = """() => [...document.querySelectorAll('table.rest')].map(table => [
    table.offsetWidth > 0, table.rows[0].cells.length,
])"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_renders_without_errors_requests_or_overflow(
    browser: Any, file: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 850}, color_scheme=scheme)
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
    page.goto(file.as_uri(), wait_until="load")
    page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true })")

    assert messages == []
    assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate(CLIPPED) == []
    images = page.evaluate(DECODED)
    missing = page.locator("li.missing").count()
    assert missing > 0
    pairs = page.locator(".side-by-side .query").count()  # the second of each two repeats no query
    assert pairs > 2
    maps = page.locator("details.positions li").count()
    assert maps > 10
    assert len(images) == 3 * 20 * (1 + 5) + pairs // 2 * (1 + 5 + 5) + missing + maps + 2  # their queries
    assert min(images) > 0
    charts = page.evaluate(
        "() => [...document.querySelectorAll('svg.chart')].map(s => s.getBoundingClientRect().height)"
    )
    # results, training, losses, sweep, geometry, spectrum, pairs, attributes, noise
    assert len(charts) == 2 + 2 + 3 + 1 + 2 + 3 + 3 + 2 + 2
    assert min(charts) > 60
    page.close()


def test_colours_follow_the_scheme_and_have_contrast(browser: Any, file: Path) -> None:
    """Text and marks have a contrast of at least 4.5 (WCAG AA) to their background."""
    grounds = []
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(file.as_uri())
        contrast, element = page.evaluate(CONTRAST)
        assert contrast >= 4.5, (scheme, element)
        grounds.append(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert grounds[0] != grounds[1]


@pytest.mark.slow
def test_a_phone_shows_two_metrics_and_unfolds_the_others(
    browser: Any, two_seeds_inputs: ReportData, tmp_path: Path
) -> None:
    path = tmp_path / "index.html"
    path.write_text(
        build(replace(two_seeds_inputs, datasets=("birds",)), "A report", 4, 4, 48).html, encoding="utf-8"
    )
    for width, columns in ((390, [3, 3, 3]), (1280, [7, 7, 7])):
        page = browser.new_page(viewport={"width": width, "height": 850})
        page.goto(path.as_uri())
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true })")
        tables = page.evaluate(FITTING)
        assert [count for count, *_ in tables] == columns
        assert all(overflow <= 1 and complete for _, overflow, complete in tables), (width, tables)
        hidden = page.evaluate(REST)
        assert hidden == [[width == 390, 5]] * 2, "the method and the four other metrics"
        other_networks = page.locator("#set-0-results tr.beside").first
        assert not other_networks.is_visible()
        page.locator("#set-0-results input.others").first.check()
        assert other_networks.is_visible()
        page.close()


@pytest.mark.slow
def test_methods_and_columns_of_the_results_can_be_hidden(browser: Any, file: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 850})
    page.goto(file.as_uri())
    table, choices = page.locator("#set-0-results table.results").first, "#set-0-results .choose"
    page.locator(choices).first.evaluate("choose => { choose.open = true }")
    headings = table.locator("thead th").all_inner_texts()
    rows = table.locator("tr.first")
    assert [row.is_visible() for row in rows.all()] == [True] * 3
    page.locator(f"{choices} [value=method-1]").first.uncheck()
    assert [row.is_visible() for row in rows.all()] == [True, False, True]
    assert not table.locator("tr.beside").first.is_visible(), "a choice shows no other network"
    page.locator(f"{choices} [value=metric-0]").first.uncheck()
    page.locator(f"{choices} [value=metric-3]").first.uncheck()
    visible = [cell.is_visible() for cell in table.locator("thead th").all()]
    assert visible == [number not in (1, 4) for number in range(len(headings))]
    of_row = [cell.is_visible() for cell in rows.first.locator("th, td").all()]
    assert of_row == visible
    page.locator(f"{choices} [value=method-1]").first.check()
    assert [row.is_visible() for row in rows.all()] == [True] * 3
    page.close()


@pytest.mark.slow
def test_the_pointer_on_a_point_of_the_map_shows_its_picture(browser: Any, file: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 850})
    page.goto(file.as_uri())
    page.locator("details.maps").first.evaluate("maps => { maps.open = true }")
    point = page.locator(".plane .point").last  # no other point covers it
    picture = point.locator("use")
    assert not picture.is_visible()
    point.locator("circle").hover()
    assert picture.is_visible()
    box = picture.bounding_box()
    assert box["width"] > 20
    page.close()


@pytest.mark.slow
def test_a_click_enlarges_a_picture(browser: Any, file: Path) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 700})
    page.goto(file.as_uri())
    picture = page.locator("details[open] .match .zoom img").first
    small = picture.bounding_box()["width"]
    background = picture.evaluate("element => getComputedStyle(element).backgroundImage")
    assert background.startswith('url("data:image/jpeg')
    picture.click()
    assert picture.bounding_box()["width"] > 4 * small
    page.keyboard.press("Space")  # the checkbox has the focus
    assert picture.bounding_box()["width"] == small
    page.close()
