"""The report in headless Chromium: no console error, keyboard use, sorting, filtering, in light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from gpustudy.analysis.report import write_report
from tests.analysis.crafted import full_study

pytestmark = pytest.mark.sites

MOST_SECONDS_TO_OPEN = 2.0
CONTRAST_OF_TEXT = 4.5
"""Least contrast of text to its ground (WCAG 2.1, success criterion 1.4.3)."""

CONTRASTS = r"""
const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const colour = rgb(getComputedStyle(node).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const linear = (share) => (share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
const light = (colour) => {
  const [r, g, b] = colour.slice(0, 3).map((value) => linear(value / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const texts = document.querySelectorAll(
  "p, li, td, th, small, caption, figcaption, code, a, dt, dd, .badge, h1, h2, h3, button, label",
);
return [...texts].map((node) => {
  const [dark, bright] = [light(rgb(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => a - b);
  return [`${node.tagName}.${node.className}`, (bright + 0.05) / (dark + 0.05)];
});
"""
"""Contrast of every text to its ground, by the formula of WCAG 2.1."""

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with the crafted report open."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    root = tmp_path_factory.mktemp("browser")
    write_report(full_study(root / "results"), root / "report.html")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={root / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        browser.get((root / "report.html").as_uri())
        yield browser
    finally:
        browser.quit()


def rows_of(page: Any, column: int) -> list[str]:
    script = """return [...document.querySelectorAll('#table-summary tbody tr')]
        .filter(row => !row.hidden).map(row => row.cells[arguments[0]].textContent)"""
    texts: list[str] = page.execute_script(script, column)
    return texts


def test_console_is_silent(page: Any) -> None:
    assert page.get_log("browser") == []


def test_nothing_is_asked_from_the_network(page: Any) -> None:
    asked = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in asked if not name.startswith("data:")] == []


def test_opens_quickly_and_shows_every_figure(page: Any) -> None:
    loaded_ms = page.execute_script("const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd")
    assert 0 < loaded_ms < 1000 * MOST_SECONDS_TO_OPEN
    widths = page.execute_script("return [...document.images].map(image => image.complete && image.naturalWidth)")
    assert widths
    assert all(widths)


def test_sorting_by_keyboard_up_and_down_with_absent_numbers_last(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    button = page.find_elements("css selector", "#table-summary thead button")[4]
    assert button.text.startswith("step time")
    button.send_keys(Keys.ENTER)
    first = rows_of(page, 4)
    assert first[:4] == ["32.0 ms", "32.0 ms", "32.0 ms", "250 ms"]
    assert first[-1] == "\N{EN DASH}"
    header = page.find_elements("css selector", "#table-summary thead th")[4]
    assert header.get_attribute("aria-sort") == "ascending"
    button.send_keys(Keys.ENTER)
    assert header.get_attribute("aria-sort") == "descending"
    last = rows_of(page, 4)
    assert (last[0], last[-1]) == ("1.25 s", "\N{EN DASH}")


def test_filter_leaves_the_rows_with_all_words(page: Any) -> None:
    field = page.find_element("xpath", "//h3[@id='title-summary']/following-sibling::label/input")
    field.send_keys("a100 SLOWER")
    assert rows_of(page, 1) == ["opt2"]
    field.clear()
    field.send_keys(" ")
    assert len(rows_of(page, 1)) == 20


def test_first_tab_offers_to_skip_the_navigation(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    page.refresh()  # where the focus was last decides where Tab goes
    page.find_element("css selector", "body").send_keys(Keys.TAB)
    focused = page.switch_to.active_element
    assert focused.text == "Skip to the findings"
    assert focused.rect["x"] >= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(page: Any, scheme: str) -> None:
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    contrasts = page.execute_script(CONTRASTS)
    assert len(contrasts) > 100
    assert [pair for pair in contrasts if pair[1] < CONTRAST_OF_TEXT] == []


def test_page_does_not_scroll_sideways_on_a_small_screen(page: Any) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    assert page.execute_script("return document.documentElement.scrollWidth") <= 400
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
