"""Debian's chromium, driven by playwright, for the tests of pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, "no browser; `apt-get install chromium`"
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()
