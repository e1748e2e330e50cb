"""The documentation site builds without a warning, and axe-core finds no serious problem of its pages.

The browser is Debian's chromium, driven by playwright. axe is part of an installed package, so nothing is downloaded.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.browsers import chromium, note_faults

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = ("index", "tutorials/first_study/index", "reference/study_file/index")
WIDTHS = {1280: 900, 390: 844}
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built with the command of `make docs`."""
    assert importlib.util.find_spec("mkdocs"), "no mkdocs; `make docs` installs it"
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ".mkdocs.yml", "-d", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen_and_has_no_serious_problem(
    site: str, browser: Browser, name: str, width: int, scheme: Any
):
    page = browser.new_page(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme)
    faults = note_faults(page, lambda address: address.startswith(site))
    page.goto(f"{site}{name}.html")
    page.wait_for_function("document.body.dataset.mdColorScheme")
    page.wait_for_timeout(300)  # the scripts of the theme wrap the tables after the page has loaded
    dark = page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    answer: Any = Axe().run(page).response
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    page.close()
    assert dark == (scheme == "dark")
    assert len(answer["passes"]) > 10, "axe checked nothing"
    found = [each for each in answer["violations"] if each["impact"] in SERIOUS]
    assert [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found] == []
    assert overflow <= 0
    assert faults == []
