"""The report in a real browser: no error, nothing fetched, hover, zoom, keyboard, both themes readable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hesscope.report import write_report
from report.browser import Page, needs_browser
from report.samples import HOSTILE, sample

pytestmark = needs_browser

CONTRAST = """
(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const node of document.querySelectorAll("body *:not(script):not(style)")) {
    if (node.closest("svg") || ![...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim())) continue;
    const box = node.getBoundingClientRect();
    if (!box.width || box.left < 0) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)}`);
  }
  return low;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("report")
    write_report(sample(HOSTILE), folder / "report.html")
    browser = Page()
    browser.folder = folder  # type: ignore[attr-defined]
    yield browser
    browser.close()


@pytest.fixture
def page(browser: Page) -> Page:
    """As it is opened, whatever other tests have done to it."""
    browser.open(browser.folder / "report.html")  # type: ignore[attr-defined]
    return browser


def _place(page: Page, figure: str) -> tuple[float, float, float, float]:
    """The plotting area of a figure in the window, scrolled into view."""
    page.run(f"document.getElementById('{figure}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = page.run(
        f"(() => {{ const r = document.querySelector('#{figure} .nsewdrag').getBoundingClientRect();"
        " return [r.left, r.top, r.width, r.height]; })()"
    )
    return tuple(box)


def _range(page: Page, figure: str, axis: str = "xaxis") -> list[float]:
    return list(page.run(f"document.getElementById('{figure}')._fullLayout.{axis}.range"))


def test_page_loads_without_errors_and_fetches_nothing(page: Page) -> None:
    assert page.messages == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_no_button_sends_anything_away(page: Page) -> None:
    titles = page.run("[...new Set([...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title))]")
    assert set(titles) == {"Zoom in", "Zoom out", "Reset axes", "Zoom", "Pan", "Download plot"}


def test_names_never_become_markup(page: Page) -> None:
    assert page.run("typeof window.broken") == "undefined"
    assert page.run("document.querySelectorAll('img').length") == 0
    assert "<script>window.broken" in page.run("document.querySelector('h1').textContent")


def test_hover_on_the_block_map_shows_names_and_norm(page: Page) -> None:
    left, top, width, height = _place(page, "blocks")
    page.mouse("mouseMoved", left + width * 0.58, top + height * 0.58)
    page.mouse("mouseMoved", left + width * 0.58 + 2, top + height * 0.58)
    page.wait("document.querySelector('#blocks .hoverlayer').textContent.includes('out[0] × out[0]')")
    assert "‖H_ij‖ = 1" in page.run("document.querySelector('#blocks .hoverlayer').textContent")


def test_drag_zooms_and_the_key_0_zooms_out(page: Page) -> None:
    left, top, width, height = _place(page, "spectrum")
    before = _range(page, "spectrum")
    page.mouse("mousePressed", left + 0.3 * width, top + 0.3 * height, "left")
    for share in (0.4, 0.5, 0.6):
        page.mouse("mouseMoved", left + share * width, top + share * height, "left")
    page.mouse("mouseReleased", left + 0.6 * width, top + 0.6 * height, "left")
    page.wait(f"document.getElementById('spectrum')._fullLayout.xaxis.range[1] < {before[1] - 0.1}")
    span = _range(page, "spectrum")
    assert span[1] - span[0] == pytest.approx(0.3 * (before[1] - before[0]), rel=0.1)
    page.run("document.getElementById('spectrum').focus()")
    page.key("0")
    page.wait(f"Math.abs(document.getElementById('spectrum')._fullLayout.xaxis.range[1] - {before[1]}) < 1e-6")


def test_keyboard_pans_zooms_and_changes_the_view(page: Page) -> None:
    page.run("document.getElementById('blocks').focus()")
    before = _range(page, "blocks")
    page.key("+")
    page.wait(f"document.getElementById('blocks')._fullLayout.xaxis.range[0] > {before[0]}")
    inner = _range(page, "blocks")
    page.key("ArrowRight")
    page.wait(f"document.getElementById('blocks')._fullLayout.xaxis.range[0] > {inner[0]}")
    page.run("document.querySelectorAll('[data-figure=blocks]')[1].focus()")
    page.key("Enter")
    page.call("Input.dispatchKeyEvent", type="char", text="\r", key="Enter")
    page.wait("document.querySelectorAll('[data-figure=blocks]')[1].getAttribute('aria-pressed') === 'true'")
    assert page.run("document.getElementById('blocks').data[0].z.length") == 2
    assert page.run("[...document.querySelectorAll('button,.figure,a')].every((e) => e.tabIndex >= 0)")


def test_every_view_of_every_figure_draws(page: Page) -> None:
    views = page.run("[...document.querySelectorAll('[data-figure]')].map((b) => { b.click(); return b.textContent; })")
    assert len(views) >= 11
    page.run("new Promise((done) => setTimeout(done, 200))")
    assert page.messages == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_contrast_is_at_least_aa(browser: Page, dark: bool) -> None:
    browser.open(browser.folder / "report.html", dark=dark)  # type: ignore[attr-defined]
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.run(CONTRAST) == []


def test_narrow_window_does_not_scroll_sideways(browser: Page) -> None:
    browser.open(browser.folder / "report.html", width=420, height=900)  # type: ignore[attr-defined]
    assert browser.run("document.documentElement.scrollWidth") <= 420


def test_theme_button_repaints_the_figures(browser: Page, tmp_path: Path) -> None:
    browser.open(browser.folder / "report.html")  # type: ignore[attr-defined]
    ink = browser.run("document.getElementById('spectrum')._fullLayout.font.color")
    browser.run("document.getElementById('theme').click()")
    browser.wait(f"document.getElementById('spectrum')._fullLayout.font.color !== '{ink}'")
    browser.screenshot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 50_000
    assert browser.messages == []
