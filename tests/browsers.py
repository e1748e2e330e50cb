"""Debian's chromium, driven by playwright, for the tests of pages."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
OURS = ("javascript", "network", "security", "storage", "worker", "xml")
"""Sources of log entries that a page causes. Chromium itself causes the others, such as `rendering` and `other`."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, "no browser; `apt-get install chromium`"
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


def note_faults(page: Page, may_load: Callable[[str], bool]) -> list[str]:
    """The faults of the page from now on: requests of other addresses, exceptions, errors and warnings.

    A warning of Chromium about the machine, for example about its graphics, is no fault of the page. Playwright does
    not tell these warnings from the page's own, so the entries come from Chromium's protocol.
    """
    faults: list[str] = []

    def note_request(url: str) -> None:
        if not (may_load(url) or url.startswith(("data:", "blob:"))):
            faults.append(f"asked for {url}")

    def note_call(call: dict[str, Any]) -> None:
        if call["type"] in ("error", "warning", "assert"):
            words = [str(each.get("value", each.get("description"))) for each in call["args"]]
            faults.append(f"{call['type']}: {' '.join(words)}")

    def note_entry(event: dict[str, Any]) -> None:
        entry = event["entry"]
        if entry["source"] in OURS and entry["level"] in ("error", "warning"):
            faults.append(f"{entry['source']}: {entry['text']}")

    page.on("request", lambda request: note_request(request.url))
    page.on("pageerror", lambda problem: faults.append(str(problem)))
    protocol = page.context.new_cdp_session(page)
    protocol.on("Runtime.consoleAPICalled", note_call)
    protocol.on("Log.entryAdded", note_entry)
    for domain in ("Runtime", "Log"):
        protocol.send(f"{domain}.enable")
    return faults
