"""The report and the comparison in a real browser, at the width of a desktop and of a phone.

The pages draw all figures, load nothing, fit the screen, and have no serious problem that axe-core finds. The browser
is Debian's chromium, driven by playwright. axe is part of an installed package, so nothing is downloaded.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from loopscale.analysis.answers.two_studies import compare
from loopscale.analysis.recorded.results import Results
from loopscale.analysis.report.study_page import study_page
from loopscale.analysis.report.two_studies_page import two_studies_page
from loopscale.contracts.planted_study import comparison
from tests.browsers import chromium, note_faults

pytestmark = pytest.mark.slow

WIDTHS = {1280: 900, 390: 844}
LONG = "https://nowhere.example/" + "a" * 300


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report with every kind of figure and table, and a comparison, as files."""
    planted, rng = comparison(), np.random.default_rng(0)
    first = planted.study["cells"][0]["key"]
    for number in range(20, 34):
        planted.trial(first, "tuning", number, 0.12 * (1 + float(rng.random())))
    planted.study["nuisance"] = {
        "training.lr": {"real": [1e-4, 1e-2], "scale": "log"},
        "model.width": {"choice": [8, 16, 32]},
    }
    planted.study["laws"] = [
        {"of": "error", "along": "loop", "form": ["power", "exponential"], "theory": "gd_smooth"}
    ]
    planted.study["plan"] = [
        {"key": cell["key"], "tuning": 4, "replicates": 3, "flops": [1e9, 4e9], "trained_share": 0.5}
        for cell in planted.study["cells"]
    ]
    planted.trial(first, "tuning", 50, np.nan, outcome="failed", detail=LONG)
    trials, curves, history = planted.tables
    tuning = trials["role"] == "tuning"
    rates = pd.Series(10 ** rng.uniform(-4, -2, len(trials)), index=trials.index)
    trials["training.lr"] = trials["training.lr"].where(~tuning, rates)
    trials["model.width"] = rng.choice([8, 16, 32], len(trials))
    about = {"Study": {"command": LONG}, "The study's file": f"question: {LONG}\n"}
    results = Results(planted.study, trials, curves, history)
    texts = {"report": study_page(results, about)}
    other = comparison(seed=7)
    other.study["name"] = "other"
    texts["comparison"] = two_studies_page(compare(results, other.results))
    folder = tmp_path_factory.mktemp("pages")
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture(params=["report", "comparison"])
def file(request: pytest.FixtureRequest, pages: dict[str, Path]) -> Path:
    return pages[request.param]


@pytest.fixture(params=WIDTHS)
def opened(request: pytest.FixtureRequest, browser: Browser, file: Path) -> Iterator[tuple[Page, list[str]]]:
    """The page at one width, and its faults: requests, errors and warnings."""
    page = browser.new_page(viewport={"width": request.param, "height": WIDTHS[request.param]})
    faults = note_faults(page, lambda url: url == file.as_uri())
    page.goto(file.as_uri())
    drawn, plots = ".plot svg.main-svg[role=img]", ".plot"
    page.wait_for_function(
        f"document.querySelectorAll('{drawn}').length === document.querySelectorAll('{plots}').length"
    )
    yield page, faults
    page.close()


def _serious(page: Page) -> list[str]:
    answer: Any = Axe().run(page).response
    assert len(answer["passes"]) > 10, "axe checked nothing"
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"
        for violation in answer["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


def _overflow(page: Page) -> int:
    """Pixels by which the page is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def test_the_page_is_drawn_loads_nothing_fits_and_is_accessible(opened):
    page, faults = opened
    plots = page.locator(".plot")
    assert plots.count() >= 2
    for place in range(plots.count()):
        plot = plots.nth(place)
        assert plot.locator(".scatterlayer .trace").count() > 0, plot.get_attribute("id")
        assert plot.locator("svg.main-svg[role=img]").count() == 1
    assert _overflow(page) <= 0
    assert _serious(page) == []
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    tables = "details[id$=-numbers] table"
    page.wait_for_function(
        f"document.querySelectorAll('{tables}').length === document.querySelectorAll('.plot').length"
    )
    assert _overflow(page) <= 0
    assert _serious(page) == []
    assert faults == []


def test_the_table_of_numbers_equals_the_drawn_values(browser: Browser, pages: dict[str, Path]):
    page = browser.new_page()
    page.goto(pages["comparison"].as_uri())
    page.locator("#errors-numbers summary").click()
    rows = page.locator("#errors-numbers tbody tr")
    rows.first.wait_for()  # the page writes the rows after the details are open
    cells = [rows.nth(place).locator("td").all_inner_texts() for place in range(rows.count())]
    traces = json.loads(page.evaluate("JSON.stringify(document.getElementById('errors').data)"))
    drawn = [point for trace in traces for point in zip(trace["x"], trace["y"], strict=True)]
    assert len(cells) == 6
    assert [float(value) for value, _ in cells] == pytest.approx([value for value, _ in drawn], rel=1e-3)
    assert [name for _, name in cells] == [name.replace("<br>", " ") for _, name in drawn]
    page.close()


def test_dragging_zooms_a_figure_and_the_keyboard_reaches_the_sections(
    browser: Browser, pages: dict[str, Path]
):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(pages["report"].as_uri())
    plot = page.locator("#loops0")
    plot.scroll_into_view_if_needed()
    before = page.evaluate("document.getElementById('loops0').layout.xaxis.range.slice()")
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=5)
    page.mouse.up()
    page.wait_for_function(
        f"document.getElementById('loops0').layout.xaxis.range[0] > {before[0]} + 0.01", timeout=120_000
    )
    page.evaluate("window.scrollTo(0, 0)")
    page.locator("body").click(position={"x": 2, "y": 2})
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "A"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#best"
    page.close()


def test_planted_faults_of_a_page_are_noted(browser: Browser, tmp_path: Path):
    (tmp_path / "faulty.html").write_text(
        """<!DOCTYPE html><html lang="en"><head><title>faulty</title>
        <meta http-equiv="Content-Security-Policy" content="img-src 'none'"></head><body>
        <img src="forbidden.png" alt=""><link rel="stylesheet" href="absent.css"><script>
        console.log("a note"); console.warn("a warning"); console.error("an error"); console.assert(false, "a claim");
        throw new Error("an exception");
        </script></body></html>"""
    )
    page = browser.new_page()
    faults = note_faults(page, lambda url: url.endswith("faulty.html"))
    page.goto((tmp_path / "faulty.html").as_uri())
    wanted = (
        "a warning",
        "an error",
        "a claim",
        "an exception",
        "Content Security Policy",
        "absent.css",
        "network: ",
    )
    for _ in range(1000):
        if all(any(words in fault for fault in faults) for words in wanted):
            break
        page.wait_for_timeout(100)
    assert [words for words in wanted if not any(words in fault for fault in faults)] == []
    assert not any("a note" in fault for fault in faults)
    page.close()


def test_axe_finds_planted_problems(browser: Browser, pages: dict[str, Path], tmp_path: Path):
    text = pages["report"].read_text(encoding="utf-8").replace("--quiet: #475467", "--quiet: #e4e7ec")
    (tmp_path / "faint.html").write_text(text.replace('<html lang="en">', "<html>"), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "faint.html").as_uri())
    violations = {violation.partition(":")[0] for violation in _serious(page)}
    assert {"color-contrast", "html-has-lang"} <= violations
    page.close()


def test_a_dark_system_gets_a_dark_page_with_enough_contrast(browser: Browser, pages: dict[str, Path]):
    page = browser.new_page(color_scheme="dark")
    page.goto(pages["report"].as_uri())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 24, 40)"
    assert _serious(page) == []
    page.close()
