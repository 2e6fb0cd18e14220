"""The report in headless Chromium: silent console, keyboard use, sorting, filtering, the full explorer, both themes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpustudy.analysis.explorer import MOST_ROWS
from gpustudy.analysis.report import write_report
from gpustudy.study.states import survey
from tests.support.crafted_study import craft_study, crafted_effective

pytestmark = pytest.mark.sites

MOST_SECONDS_TO_OPEN = 2.0
MOST_MS_TO_ANSWER = 200
"""Time from a choice to its rows that still feels immediate, with room for a busy machine."""
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


KERNELS = 150
"""Kernels of each census beside those that are there: more than the explorer takes of twenty gpus and configs."""


def many_kernels(results: Path) -> None:
    """Give every census many more kernels, with the long names that templates have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gpustudy.base.atomic import write_json
    from gpustudy.base.digests import file_sha256

    for path in results.glob("metrics/*/*/r1/census-*/launches.parquet"):
        whole = pq.read_table(path, partitioning=None)
        row = whole.slice(0, 1).to_pylist()[0]
        longer = "at::native::(anonymous namespace)::vectorized_elementwise_kernel<4, float, " * 3
        rows = [
            row | {"name": f"void kernel_{number:03d}<{longer}>", "duration_ns": 1000 + number}
            for number in range(KERNELS)
        ]
        pq.write_table(pa.concat_tables([whole, pa.Table.from_pylist(rows, schema=whole.schema)]), path)
        manifest = path.parent / "metrics.json"
        content = json.loads(manifest.read_text())
        content["tables"][path.name] |= {"sha256": file_sha256(path), "bytes": path.stat().st_size}
        write_json(manifest, content)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with the crafted report open."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    root = tmp_path_factory.mktemp("browser")
    effective = craft_study(crafted_effective(root / "results"))
    many_kernels(effective.results)
    write_report(survey(effective), root / "report.html")
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
    assert first[:3] == ["16.5 ms"] * 3  # 36 launches on the crafted processor
    assert first[-1] == "\N{EN DASH}"
    header = page.find_elements("css selector", "#table-summary thead th")[4]
    assert header.get_attribute("aria-sort") == "ascending"
    button.send_keys(Keys.ENTER)
    assert header.get_attribute("aria-sort") == "descending"
    last = rows_of(page, 4)
    assert (last[0], last[-1]) == ("373 ms", "\N{EN DASH}")  # opt2 on the slowest device; opt1 on the cpu has none


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
    assert focused.text == "Skip to the results"
    assert focused.rect["x"] >= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(page: Any, scheme: str) -> None:
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    contrasts = page.execute_script(CONTRASTS)
    assert len(contrasts) > 100
    assert [pair for pair in contrasts if pair[1] < CONTRAST_OF_TEXT] == []


def choose(page: Any, name: str, label: str) -> None:
    from selenium.webdriver.support.select import Select

    Select(page.find_element("css selector", f"#kernel-filters [name={name}]")).select_by_visible_text(label)


def kernels(page: Any, title: str) -> list[str]:
    """The entries of one column of the explorer, from the top."""
    script = """return [...document.querySelectorAll('#kernels tbody td')]
        .filter(cell => cell.dataset.title === arguments[0]).map(cell => cell.textContent)"""
    texts: list[str] = page.execute_script(script, title)
    return texts


def counted(page: Any) -> str:
    text: str = page.find_element("id", "kernel-count").text
    return text


@pytest.fixture
def explorer(page: Any) -> Any:
    page.find_element("css selector", "#kernel-filters button[type=reset]").click()
    return page


def test_explorer_is_full_and_shows_the_most_expensive_first(explorer: Any) -> None:
    assert counted(explorer) == f"50 of {MOST_ROWS} matching kernels shown, {MOST_ROWS} in all."
    times = [float(text) for text in kernels(explorer, "ms / step")]
    assert times == sorted(times, reverse=True)
    assert times[0] == 106  # six launches of 16 ms, a tenth slower in opt2, on a device of half the speed


def test_explorer_filters_by_gpu_config_phase_class_and_name(explorer: Any) -> None:
    choose(explorer, "gpu", "a100")
    choose(explorer, "config", "opt1")
    choose(explorer, "phase", "backward")
    assert set(kernels(explorer, "GPU")) == {"a100"}
    assert set(kernels(explorer, "config")) == {"opt1"}
    assert set(kernels(explorer, "phase")) == {"backward"}
    choose(explorer, "class", "conv_wgrad")
    assert kernels(explorer, "ms / step") == ["9.6"]
    choose(explorer, "class", "all")
    explorer.find_element("css selector", "#kernel-filters [name=text]").send_keys("XMMA dgrad")
    assert len(kernels(explorer, "kernel")) == 1
    assert counted(explorer).startswith("1 of 1 matching kernels shown")


def test_explorer_sorts_by_score_and_any_metric_by_keyboard(explorer: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    choose(explorer, "sort", "IPC")
    values = [float(text) for text in kernels(explorer, "IPC")]
    assert values[0] == max(values)
    header = next(
        header
        for header in explorer.find_elements("css selector", "#kernels thead th")
        if header.text.startswith("score")
    )
    assert "modelled" in header.text
    header.find_element("css selector", "button").send_keys(Keys.ENTER)
    assert header.get_attribute("aria-sort") == "descending"
    scores = [float(text) for text in kernels(explorer, "score, ms / step") if text != "\N{EN DASH}"]
    assert scores == sorted(scores, reverse=True)
    header.find_element("css selector", "button").send_keys(Keys.SPACE)
    assert header.get_attribute("aria-sort") == "ascending"
    assert kernels(explorer, "score, ms / step")[0] != "\N{EN DASH}"  # without a value: last, up or down


def test_explorer_shows_more_rows_and_moves_the_focus_there(explorer: Any) -> None:
    explorer.find_element("id", "kernel-more").click()
    assert counted(explorer).startswith("250 of")
    row = explorer.execute_script("return document.activeElement.sectionRowIndex")
    assert row == 50


def test_every_choice_has_a_label(page: Any) -> None:
    script = """return [...document.querySelectorAll('input, select')]
        .filter(field => field.labels.length !== 1 || !field.labels[0].textContent.trim()).length"""
    assert page.execute_script(script) == 0


def test_explorer_answers_a_choice_without_a_pause(explorer: Any) -> None:
    script = """const form = document.getElementById('kernel-filters'); const begin = performance.now();
        form.elements.text.value = 'kernel'; form.dispatchEvent(new Event('input')); return performance.now() - begin"""
    assert explorer.execute_script(script) < MOST_MS_TO_ANSWER


def test_claims_open_by_keyboard_and_lead_to_what_shows_them(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    claim = page.find_element("css selector", "#claim-O2-1")
    claim.find_element("css selector", "summary").send_keys(Keys.ENTER)
    assert claim.get_attribute("open") is not None
    assert "gpustudy claims O2-1 --explain" in claim.text


@pytest.mark.parametrize("width", [400, 1280])
def test_page_does_not_scroll_sideways(page: Any, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_provenance_needs_no_scrolling_on_a_small_screen(page: Any) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    wide = """return [...document.querySelectorAll('#provenance dd, .cards td')]
        .filter(entry => entry.getBoundingClientRect().right > 400).length"""
    assert page.execute_script(wide) == 0
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_console_is_still_silent_after_all_that(page: Any) -> None:
    assert page.get_log("browser") == []


def test_a_report_without_cells_is_silent_too(page: Any, tmp_path: Path) -> None:
    write_report(survey(crafted_effective(tmp_path / "results")), tmp_path / "report.html")
    page.get((tmp_path / "report.html").as_uri())
    assert page.get_log("browser") == []
    assert "there are no kernels to list" in page.find_element("id", "explorer").text
