"""The notice at the end of a run, to a real server and to a real command."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from loopscale.interface.notices import Notice, send_notice, user_settings
from loopscale.notation.mistakes import Mistakes

NOTICE = Notice("budget spent", "mine", "the budget is spent; 3 trials remain")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LOOPSCALE_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "loopscale/config.yaml"
    file.parent.mkdir()
    return file


class Hook(HTTPServer):
    """Keeps the requests. Answers with `status`."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str, dict[str, str]]] = []


class Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_url_gets_the_notice_as_json(config: Path, hook: Hook):
    config.write_text(f"notify: http://127.0.0.1:{hook.server_port}/hook\n")
    warnings: list[str] = []
    send_notice(NOTICE, warnings.append)
    body = {"event": "budget spent", "study": "mine", "text": "the budget is spent; 3 trials remain"}
    assert hook.requests == [("/hook", "application/json", body)]
    assert warnings == []


def test_a_command_gets_the_notice_in_its_environment_and_on_standard_input(config: Path, tmp_path: Path):
    out = tmp_path / "out"
    words = f'echo \\"$LOOPSCALE_EVENT: $LOOPSCALE_STUDY: $LOOPSCALE_TEXT\\" > {out}; cat >> {out}'
    config.write_text(f'notify: "{words}"\n')
    warnings: list[str] = []
    send_notice(NOTICE, warnings.append)
    line, body = out.read_text().split("\n", 1)
    assert line == "budget spent: mine: the budget is spent; 3 trials remain"
    assert json.loads(body)["event"] == "budget spent"
    assert warnings == []


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("http://127.0.0.1:9/", "refused"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("echo cannot connect >&2; exit 3", "ended with 3: cannot connect"),
        ("nosuchprogram", "ended with 127"),
    ],
)
def test_a_failing_hook_is_one_warning(config: Path, setting: str, reason: str):
    config.write_text(json.dumps({"notify": setting}))
    warnings: list[str] = []
    send_notice(NOTICE, warnings.append)
    (warning,) = warnings
    assert reason in warning
    assert "\n" not in warning
    assert warning.endswith("mend notify: in the user's configuration")


def test_a_refusing_server_is_one_warning(config: Path, hook: Hook):
    hook.status = 403
    config.write_text(f"notify: http://127.0.0.1:{hook.server_port}/\n")
    warnings: list[str] = []
    send_notice(NOTICE, warnings.append)
    assert len(warnings) == 1
    assert "403" in warnings[0]


def test_without_a_file_there_is_no_notice(config: Path):
    warnings: list[str] = []
    send_notice(NOTICE, warnings.append)
    assert warnings == []
    assert user_settings().notify == ""


def test_mistakes_of_the_configuration_name_the_line(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config.write_text("# mine\nnotfy: echo\n")
    with pytest.raises(Mistakes, match=r"config.yaml:2: .*did you mean notify"):
        user_settings()
    monkeypatch.setenv("LOOPSCALE_CONFIG", str(tmp_path / "nosuch.yaml"))
    with pytest.raises(Mistakes, match="cannot be read"):
        user_settings()


def test_neither_a_notice_nor_its_warning_holds_a_password(config: Path, tmp_path: Path):
    command = (
        f"cat > {tmp_path}/sent; echo 'http://me:tr0ub4dor@host refuses' >&2; false --password tr0ub4dor"
    )
    config.write_text(f"notify: {json.dumps(command)}\n")
    warnings = list[str]()
    send_notice(
        Notice("failed", "one", "no database answers at postgresql://me:tr0ub4dor@db"), warnings.append
    )
    assert "postgresql://me@db" in (tmp_path / "sent").read_text()
    assert len(warnings) == 1
    assert "tr0ub4dor" not in (tmp_path / "sent").read_text() + warnings[0]


def test_a_user_without_a_name_and_a_home_has_no_configuration(monkeypatch: pytest.MonkeyPatch):
    """A container may run as a number that no file of users knows, without HOME."""
    for name in ("HOME", "XDG_CONFIG_HOME", "LOOPSCALE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    if (child := os.fork()) == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setuid(54_321)
            code = 0 if user_settings().notify == "" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
