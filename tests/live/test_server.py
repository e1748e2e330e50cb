"""The server of the page over real connections: who may ask, the answers, and the end."""

import http.client
import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from loopscale.errors import UsageError
from loopscale.live.board import Board
from loopscale.live.server import PageServer, bind, live_page, make_app, url_of

SECONDS = 300
"""Longest wait for an answer, on a loaded machine."""


@dataclass
class Served:
    board: Board
    port: int
    thread: threading.Thread
    connections: list[http.client.HTTPConnection] = field(default_factory=list)

    def ask(self, path: str, host: str = "", method: str = "GET") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        self.connections.append(connection)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{self.port}")
        connection.endheaders()
        return connection.getresponse()


@pytest.fixture
def served() -> Iterator[Served]:
    listening, board = bind(), Board()
    app = make_app(board, lambda: {"store": "/nowhere", "storage": None, "study": "absent"})
    thread = threading.Thread(target=PageServer(app, board).run, args=([listening],))
    thread.start()
    served = Served(board, listening.getsockname()[1], thread)
    yield served
    for connection in served.connections:
        connection.close()
    board.close()
    thread.join(SECONDS)
    assert not thread.is_alive()


def next_event(stream: http.client.HTTPResponse) -> tuple[str, dict[str, Any]]:
    lines = list(iter(lambda: stream.readline().decode().rstrip("\n"), ""))
    fields = dict(line.split(": ", 1) for line in lines)
    return fields.get("event", "message"), json.loads(fields["data"])


def test_the_page_and_its_scripts_are_served_with_headers_that_keep_others_out(served: Served):
    for path, kind in (
        ("/", "text/html"),
        ("/live.js", "text/javascript"),
        ("/plotly.js", "text/javascript"),
    ):
        answer = served.ask(path)
        assert answer.status == 200
        assert (answer.getheader("content-type") or "").startswith(kind)
        assert answer.getheader("x-content-type-options") == "nosniff"
        assert answer.getheader("access-control-allow-origin") is None
        assert answer.read()
    policy = served.ask("/").getheader("content-security-policy") or ""
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"https?://", live_page()), "the page names no other host"


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1]", "192.0.2.7"]
)
@pytest.mark.parametrize("path", ["/", "/events", "/report"])
def test_a_name_of_another_site_for_this_address_gets_no_answer(served: Served, host: str, path: str):
    assert served.ask(path, host).status == 400


def test_a_tunnel_may_have_any_port(served: Served):
    assert served.ask("/", "localhost:9999").status == 200


def test_nothing_can_be_sent_to_the_server(served: Served):
    for method in ("POST", "PUT", "DELETE"):
        assert served.ask("/", method=method).status == 405
    assert served.ask("/absent").status == 404
    assert served.ask("/../live.js").status == 404


def test_only_this_machine_can_connect(served: Served):
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as other:
            other.settimeout(SECONDS)
            assert other.connect_ex((address, served.port)) != 0, address


def test_several_browsers_follow_one_goes_away_and_all_others_see_the_end(served: Served):
    served.board.update({"header": {"work": 0}})
    browsers = [served.ask("/events") for _ in range(12)]
    for browser in browsers:
        assert (browser.getheader("content-type") or "").startswith("text/event-stream")
        assert next_event(browser) == ("state", {"header": {"work": 0}})
    browsers.pop().close()
    served.connections.pop().close()
    served.board.update({"header": {"work": 1}})
    for browser in browsers:
        assert next_event(browser) == ("message", {"header": {"work": 1}})
    served.board.close()
    for browser in browsers:
        assert next_event(browser) == ("end", {})
        assert browser.readline() == b""


@pytest.mark.slow
def test_a_report_that_cannot_be_written_says_why(served: Served):
    answer = served.ask("/report")
    assert answer.status == 503
    assert "no records in /nowhere yet" in answer.read().decode()


def test_a_port_in_use_is_one_line_with_a_remedy(served: Served):
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{served.port} .*; give another --port"):
        bind(served.port)


def test_a_free_port_is_found_each_time():
    with bind() as first, bind() as second:
        assert url_of(first) != url_of(second)
        assert url_of(first).startswith("http://127.0.0.1:")
