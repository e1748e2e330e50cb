"""The live page in a real browser: of hostile records at two widths, and while a real study runs on Ray.

The browser is Debian's chromium, driven by playwright. A worker of the real study is killed.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from loopscale.live.board import Board
from loopscale.live.recorded_study import CURVE, RecordedStudy
from loopscale.live.server import PageServer, bind, make_app, url_of
from loopscale.live.watcher import Watcher
from loopscale.records.model import STUDY, Note
from loopscale.records.stores.opening import open_store
from loopscale.studies.spec import Study
from tests import processes
from tests.browsers import chromium, note_faults
from tests.cli.conftest import TINY, record
from tests.processes import outcome, wait_until
from tests.runner.drivers import SURVIVAL, Driver, kill_worker, survival_driver

pytestmark = pytest.mark.slow

SECONDS = 900
"""Longest wait for a change of the page, on a loaded machine."""
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
POINTS = "document.getElementById('curve-plot').data.flatMap(trace => trace.y).filter(y => y !== null).length"
"""JavaScript: the number of drawn validations."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@contextmanager
def opened(browser: Browser, url: str, width: int = 1200, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """The page, and its faults: requests of other hosts, errors and warnings."""
    page = browser.new_page(viewport={"width": width, "height": 900}, **options)
    page.set_default_timeout(1000 * SECONDS)
    faults = note_faults(page, lambda address: address.startswith(url))
    page.goto(url)
    yield page, faults
    page.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Watcher]]:
    """The address of a page whose records hold markup in all texts, and the watcher of the page."""
    tree = TINY.replace("Does the error fall with the loops?", json.dumps(HOSTILE))
    study, root = Study.parse(tree.replace("source: nowhere", f"source: {json.dumps(HOSTILE)}"), "tiny"), None
    root = tmp_path_factory.mktemp("hostile") / "store"
    first = study.cells()[0]
    with record(root, study) as recording:
        recording.whole()
        document = study.document()
        document["cells"][0]["label"] = HOSTILE
        files = (("study.json", json.dumps(document).encode()),)
        recording.writer.write(Note(STUDY, tags={"ended_early": HOSTILE}, artifacts=files))
        detail = f"Traceback\n{HOSTILE}\n{HOSTILE}"
        recording.trial(first, "tuning", 7, 0, {"training.lr": 3e-3}, 0.5, "failed", detail)
    board, listening = Board(), bind()
    watcher = Watcher(board, lambda: open_store(root), "tiny", driven=True)
    watcher.hear(
        {
            "stage": HOSTILE,
            "report": HOSTILE,
            "workers": [{"id": HOSTILE, "name": HOSTILE, "cell": HOSTILE, "host": HOSTILE}],
        }
    )
    watcher.look()
    server = PageServer(make_app(board, dict), board)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield url_of(listening), watcher
    board.close()
    thread.join()


def wait_for(page: Page, expression: str) -> None:
    """Wait until JavaScript is true. Playwright's own wait would need `eval`, which the page forbids."""
    end = time.monotonic() + SECONDS
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression}\n{page.inner_text('body')[:3000]}"
        page.wait_for_timeout(100)


def serious(page: Page) -> list[str]:
    answer: Any = Axe().run(page).response
    assert len(answer["passes"]) > 10, "axe checked nothing"
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"
        for violation in answer["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_of_hostile_records_is_drawn_fits_and_runs_none_of_their_code(
    browser: Browser, hostile: tuple[str, Watcher], width: int, scheme: str
):
    with opened(browser, hostile[0], width, color_scheme=scheme) as (page, faults):
        page.wait_for_selector("#curve-plot .scatterlayer .trace", state="attached")
        page.wait_for_selector("#point-plot .scatterlayer .trace", state="attached")
        page.locator("#failure-rows summary").click()
        assert page.locator("#failure-rows pre").inner_text().count(HOSTILE) == 2
        assert page.locator("#question").inner_text() == HOSTILE
        assert HOSTILE in page.locator("#cell-rows").inner_text()
        assert page.locator("#worker-rows").inner_text().count(HOSTILE) == 3, "trial, cell and host"
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        assert page.locator("svg.main-svg[role=img]").count() == 2
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 24, 40)"
        assert dark == (scheme == "dark")
        assert serious(page) == []
        assert faults == []


def test_a_choice_shows_one_cell_and_an_opened_reason_stays_open(
    browser: Browser, hostile: tuple[str, Watcher]
):
    url, watcher = hostile
    with opened(browser, url) as (page, faults):
        page.wait_for_selector("#curve-plot .scatterlayer .trace", state="attached")
        names = "Array.from(document.getElementById('curve-plot').data, trace => trace.name)"
        assert len(page.evaluate(names)) == 4
        page.select_option("#chosen", "1")
        wait_for(page, f"{names}.length === 2")
        assert page.evaluate(names) == ["loops=2, tuning", "loops=2, replicates"]
        page.locator("#failure-rows summary").click()
        failures = json.loads(watcher.board.since(0)[1])["failures"]
        added = failures["rows"][0] | {"id": "new", "trial": "new"}
        watcher.board.update({"failures": failures | {"rows": [added, *failures["rows"]]}})
        wait_for(page, "document.getElementById('failure-rows').rows.length === 2")
        opened_rows = page.evaluate(
            "Array.from(document.querySelectorAll('#failure-rows details'), box => box.open)"
        )
        assert opened_rows == [False, True]
        watcher.board.update({"failures": failures})
        assert faults == []


def page_processes(driver: int) -> list[psutil.Process]:
    """The processes of the pages of a driver. A process that has just started has no command line for a moment."""
    found = list[psutil.Process]()
    for child in psutil.Process(driver).children():
        with suppress(psutil.Error):
            found += [child] if "loopscale.live.process" in child.cmdline() else []
    return found


@pytest.mark.timeout(4500)
def test_a_page_follows_a_running_study_past_the_death_of_a_worker_to_its_end(
    browser: Browser, tmp_path: Path
):
    driver = survival_driver(tmp_path, budget={"core_hours": 50})
    driver.overrides = ("training.steps=180", "training.eval_every=2", "search.trials=2", "replicates=1")
    with ExitStack() as stack:
        slow = stack.enter_context(ExitStack())
        slow.enter_context(driver.slow_saves(1.0))  # a trial lasts longer than the look at the page
        process = driver.start("--watch")
        assert process.stderr
        url = process.stderr.readline().rpartition(" ")[2].strip()
        wait_until(lambda: page_processes(process.pid), process)
        (server,) = page_processes(process.pid)
        page, faults = stack.enter_context(opened(browser, url))
        phone, phone_faults = stack.enter_context(opened(browser, url, 390))
        wait_for(page, "document.querySelectorAll('#cell-rows tr').length === 2")
        assert page.locator("#question").inner_text() == "Does a study survive?"
        wait_for(page, f"document.getElementById('curve-plot').data && {POINTS} > 4")
        assert "of 50 core-hours left" in page.locator("#facts").inner_text()
        page.evaluate("Plotly.relayout('curve-plot', {'xaxis.range[0]': 1, 'xaxis.range[1]': 160})")
        page.evaluate("window.scrollTo(0, 500)")
        drawn = page.evaluate(POINTS)
        wait_for(page, f"{POINTS} > {drawn} + 4")
        assert page.evaluate("document.getElementById('curve-plot').layout.xaxis.range") == [1, 160]
        assert page.evaluate("window.scrollY") == 500
        wait_for(page, "document.getElementById('worker-rows').innerText.includes('trains')")
        row = page.locator("#worker-rows tr", has_text="trains").first
        assert row.locator("td, th").nth(3).inner_text() == socket.gethostname()
        wait_until(lambda: len(driver.saves()) > 3, process)
        kill_worker(process)
        slow.close()
        for each in (page, phone):
            wait_for(each, "document.getElementById('failure-rows').textContent.includes('worker died once')")
        assert "its worker process has died" in page.locator("#failure-rows .reason").first.inner_text()
        for each in (page, phone):
            wait_for(each, "document.getElementById('connection').textContent.includes('has ended')")
        report = driver.store / "reports" / f"{driver.name}.html"
        assert page.locator("#state").inner_text() == "The study is over."
        assert page.locator("#report-place").inner_text() == f"The final report is {report}"
        assert page.locator("#failure-rows").inner_text().count("worker died once, finished later") >= 1
        assert page.locator("#cell-rows td:nth-child(2)").all_inner_texts() == ["done", "done"]
        assert page.locator("#no-workers").is_visible()
        assert page.title() == "100 % · survival · loopscale"
        assert page.evaluate(POINTS) > drawn
        assert faults == phone_faults == []
    code, out, err = outcome(process)
    assert code == 0, err
    assert f"report: {report}" in out
    assert not server.is_running()


DECIDED: dict[str, Any] = {
    # Without room in the task, no training stands on a plateau, so the looks judge short trainings too.
    "fixed": SURVIVAL["fixed"]
    | {"task": {"kind": "linear_regression", "dim": 2, "points": 5, "noise": 4.0}}
    | {"training": {"steps": 100, "batch_size": 16, "eval_every": 10}},
    "scientific": {"training.loops": [1, 4], "training.window": [1]},
    "search": {"kind": "random", "trials": 2},
    "replicates": 2,
    "claims": [
        {
            "text": "one loop is worse than least squares",
            "first": {"training.loops": 1},
            "second": {"solver": "least_squares"},
            "margin": None,
        },
    ],
    "until": {"looks": [2, 3], "futile": 0.0},
}
FEW_SAVES, MORE_SAVES = 6, 26
"""Checkpoints at which the workers wait. Two tuning trials run at the first number, and later trials at the second."""
SHOWN = """({
  cells: Array.from(document.getElementById('cell-rows').rows, row => Array.from(row.cells, box => box.textContent)),
  curves: document.getElementById('curve-plot').data.filter(trace => trace.uid !== 'ends')
    .flatMap(trace => trace.y).filter(y => y !== null).length,
  points: document.getElementById('point-plot').data.flatMap(trace => trace.x).filter(x => x === null).length,
  decisions: Array.from(document.getElementById('decision-rows').rows, row => row.cells[0].textContent),
})"""
"""JavaScript: the cells, the number of validations and of trials in the figures, and the decisions on the page."""


def recorded(driver: Driver) -> dict[str, Any]:
    """The same numbers from the store, by another reader."""
    parts = RecordedStudy(open_store(driver.store), driver.name).parts()
    assert parts
    cells = [
        [
            cell["label"],
            cell["state"],
            cell["tuned"],
            str(cell["pruned"]),
            cell["replicates"],
            str(cell["running"]),
            str(cell["without"]),
        ]
        for cell in parts["cells"]
    ]
    return {
        "cells": cells,
        "curves": sum(len(part["x"]) for name, part in parts.items() if name.startswith(CURVE)),
        "points": len(parts["points"]["rows"]),
        "decisions": [row["question"] for row in parts["decisions"]],
    }


def wait_for_all(page: Page, driver: Driver) -> dict[str, Any]:
    """Wait until the page shows all that is in the store. Returns the content of the page."""
    wait_for(page, "['curve-plot', 'point-plot'].every(id => document.getElementById(id).data)")
    end = time.monotonic() + SECONDS
    while True:
        shown, known = page.evaluate(SHOWN), recorded(driver)
        shown["cells"] = [cell[:7] for cell in shown["cells"]]
        if shown == known:
            return shown
        assert time.monotonic() < end, (shown, known)
        page.wait_for_timeout(200)


@pytest.mark.timeout(4500)
def test_a_page_that_was_closed_and_opened_again_shows_all_cells_trials_and_decisions_so_far(
    browser: Browser, tmp_path: Path
):
    driver = survival_driver(tmp_path, **DECIDED)
    with ExitStack() as stack:
        early = stack.enter_context(ExitStack())
        early.enter_context(driver.held_after(FEW_SAVES))
        process = driver.start("--watch")
        assert process.stderr
        url = process.stderr.readline().rpartition(" ")[2].strip()
        wait_until(lambda: driver.saves().total() >= FEW_SAVES, process)
        with opened(browser, url) as (page, faults):  # all workers wait now, so the records stand still
            before = wait_for_all(page, driver)
            assert faults == []
        with driver.slow_saves():  # no worker runs on between the two holds
            early.close()
            stack.enter_context(driver.held_after(MORE_SAVES))
        wait_until(lambda: driver.saves().total() >= MORE_SAVES, process)
        with opened(browser, url) as (page, faults):
            after = wait_for_all(page, driver)
            assert (len(after["cells"]), after["curves"] > before["curves"]) == (2, True)
            assert after["points"] > before["points"]
            assert faults == []
    assert outcome(process)[0] == 0
    command = [sys.executable, "-m", "loopscale.cli.main", "watch", str(driver.study)]
    watching = processes.start([*command, "--store", str(driver.store)])
    assert watching.stdout
    url = watching.stdout.readline().partition(" is at ")[2].partition(";")[0]
    with opened(browser, url) as (page, faults):
        whole = wait_for_all(page, driver)
        assert {cell[1] for cell in whole["cells"]} == {"done"}
        assert whole["decisions"]
        assert page.locator("#decision-section").is_visible()
        assert page.locator("#decision-link").is_visible()
        looks = page.locator("#decision-rows td:nth-child(2)").all_inner_texts()
        assert looks[-1] == "2"
        assert serious(page) == []
        assert faults == []
    processes.end(watching)
