"""The page's process beside a driver: what the driver says, the end with a report, a killed driver, a lost page."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import loopscale
from loopscale.live.driver_page import LivePage
from loopscale.records.model import Note
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record

pytestmark = pytest.mark.slow

SECONDS = 300
"""Longest wait for an event, on a loaded machine."""


class NoWriter:
    """The driver's writer without a store, because the records are written already."""

    backlog, away_since = 0, None

    def write(self, note: Note) -> None: ...

    def flush(self, timeout: float) -> bool:
        return True


@pytest.fixture
def study() -> Study:
    return Study.parse(TINY, "tiny")


@pytest.fixture
def store(tmp_path: Path, study: Study) -> Path:
    with record(tmp_path / "store", study) as recording:
        recording.whole()
    return tmp_path / "store"


def states(url: str) -> Iterator[dict[str, Any]]:
    """The state of the page after each event, until the end."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)
    connection.request("GET", "/events")
    state: dict[str, Any] = {}
    with closing(connection):
        stream = connection.getresponse()
        for line in iter(stream.readline, b""):
            if line.startswith(b"data: "):
                state |= json.loads(line.removeprefix(b"data: "))
                yield state


def first(url: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    return next(state for state in states(url) if condition(state))


def test_the_page_shows_what_the_driver_says_and_ends_with_the_place_of_the_report(store: Path, study: Study):
    conductor = Conductor(study, [], NoWriter())
    with loopscale.LivePage(store) as page:
        page.on_stage("the start of Ray")
        assert first(page.url, lambda state: state["header"]["stage"] == "the start of Ray")
        page.on_start(conductor)
        known = first(page.url, lambda state: bool(state["header"].get("question")))
        assert known["header"]["question"] == "Does the error fall with the loops?"
        job = conductor.start_next()
        assert isinstance(job, Job)
        starting = first(page.url, lambda state: bool(state["workers"]))
        assert (starting["workers"][0]["id"], starting["workers"][0]["does"]) == (job.key, "starts")
        conductor.report(job.key, Report())
        page.on_report(job, Report())
        page.on_stage("")
        assert first(
            page.url, lambda state: bool(state["workers"]) and state["workers"][0]["does"] != "starts"
        )
        following = states(page.url)
        next(following)
        page.on_end()
        page.close(Path("reports/tiny.html"))
        *_, last = following
        assert last["header"]["report"] == "reports/tiny.html"
        assert last["header"]["state"] == "over"
        assert last["workers"] == []
    assert page._process.returncode == 0
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(urlsplit(page.url).netloc).connect()


def test_the_page_names_the_host_of_each_attempt_after_its_first_validation(store: Path, study: Study):
    conductor = Conductor(study, [], NoWriter())
    with loopscale.LivePage(store) as page:
        page.on_start(conductor)
        job = next(
            job for job in iter(conductor.start_next, None) if isinstance(job, Job) and job.role != "baseline"
        )

        def shown(does: str, attempt: int) -> str:
            """The host of the trial in the first state that shows what its worker does, in this attempt."""

            def row(state: dict[str, Any]) -> list[dict[str, Any]]:
                wanted = {"id": job.key, "does": does, "attempt": attempt}
                return [each for each in state.get("workers", []) if wanted.items() <= each.items()]

            page.on_stage(f"{does} {attempt}")
            return row(first(page.url, lambda state: bool(row(state))))[0]["host"]

        assert shown("starts", 1) == ""
        report = Report(((1, {"error": 0.5, "error_last": 0.5}),), host="gpu-7")
        conductor.report(job.key, report)
        page.on_report(job, report)
        assert shown("trains", 1) == "gpu-7"
        conductor.report_lost(job.key, "gone", "host", "gpu-7")
        assert conductor.start_next() is job
        assert shown("starts", 2) == ""
        page.close()


DRIVER = """
import sys, time
from loopscale.live.driver_page import LivePage
from loopscale.runner.decide.conductor import Conductor
from loopscale.studies.spec import Study
from tests.live.test_driver_page import NoWriter

page = LivePage(sys.argv[1])
page.on_start(Conductor(Study.parse(sys.argv[2], "tiny"), [], NoWriter()))
print(page.url, page._process.pid, flush=True)
time.sleep(600)
"""


def test_the_page_ends_with_a_killed_driver_and_says_so(tmp_path: Path, study: Study):
    with record(tmp_path / "store", study) as recording:
        recording.parent("RUNNING")
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "store"), TINY]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as driver:
        assert driver.stdout
        url, process = driver.stdout.readline().split()
        first(url, lambda state: bool(state["header"].get("question")))
        following = states(url)
        next(following)
        driver.send_signal(signal.SIGKILL)
        *_, last = following
    assert "ended without a word" in last["header"]["state"]
    until = time.monotonic() + SECONDS
    while Path(f"/proc/{process}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{process}").exists()


def test_a_page_that_dies_is_told_once_and_the_driver_goes_on(store: Path, study: Study):
    told: list[str] = []
    page = LivePage(store, notice=told.append)
    page.on_start(Conductor(study, [], NoWriter()))
    os.kill(page._process.pid, signal.SIGKILL)
    until = time.monotonic() + SECONDS
    while not told and time.monotonic() < until:
        page.on_stage(f"stage {time.monotonic()}")
        time.sleep(0.1)
    page.on_end()
    page.close()
    page.close()
    (line,) = told
    assert line == (
        "the live page has ended early (exit code -9); the study goes on, and `loopscale watch` shows it"
    )


def test_a_page_that_hangs_does_not_hold_up_the_driver(store: Path, study: Study):
    page = LivePage(store)
    os.kill(page._process.pid, signal.SIGSTOP)
    conductor = Conductor(study, [], NoWriter())
    page.on_start(conductor)
    for number in range(2000):  # more than a pipe holds
        page.on_stage("x" * 1000 + str(number))
    page.on_end()
    page.close()
    assert page._process.returncode == -signal.SIGKILL
