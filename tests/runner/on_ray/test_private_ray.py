"""The Ray of this machine: no other machine and no other user reaches it."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopscale import redaction

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ATTACK = """
import os, sys
import ray
os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
assert not os.access(sys.argv[2], os.R_OK | os.X_OK), "the folder is open"
ray.init(sys.argv[1], log_to_driver=False)
print(ray.get(ray.remote(lambda: "THE CODE RAN").remote(), timeout=60))
"""
"""A program of the user nobody, which has loaded Ray before, because nobody may not read the folder of Python."""


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A session in a process of its own, whose command and environment hold a password."""
    home = tmp_path_factory.mktemp("home")
    command = [sys.executable, str(Path(__file__).with_name("session_driver.py"))]
    command += ["--store", "postgresql://me:tr0ub4dor@db/x"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment | {"HOME": str(home)}, text=True, **pipes) as driver:
        assert driver.stdout
        about = json.loads(driver.stdout.readline())
        yield about | {"pid": driver.pid, "home": home}
        driver.communicate()
    assert driver.returncode == 0
    assert not Path(about["folder"]).parents[1].exists()


def test_every_port_of_ray_is_on_the_loopback_interface(private: dict[str, Any]):
    driver = psutil.Process(private["pid"])
    processes = [driver, *driver.children(recursive=True)]
    listening = [
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 5
    assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_the_token_and_the_folder_are_the_users_alone(private: dict[str, Any]):
    folder = Path(private["folder"]).parents[1]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(private["token"]) == 64
    assert not (private["home"] / ".ray").exists(), "no file holds the token"


@pytest.mark.parametrize(
    ("token", "mode"),
    [(None, "disabled"), ("0" * 64, "token"), ("own", "token")],
    ids=["none", "guess", "own"],
)
def test_another_user_cannot_run_code_without_the_token(
    private: dict[str, Any], token: str | None, mode: str
):
    """With the token the attack succeeds: so the token alone keeps the user out."""
    if os.getuid() != 0:
        pytest.skip("only root becomes another user")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "RAY_AUTH_MODE": mode}
    environment |= {"RAY_AUTH_TOKEN": private["token"] if token == "own" else token} if token else {}
    environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = [sys.executable, "-c", ATTACK, private["address"], str(Path(private["folder"]).parents[1])]
    with subprocess.Popen(words, env=environment, stdout=-1, stderr=-1, text=True, cwd="/") as attack:
        try:
            out, err = attack.communicate(timeout=45)  # Ray itself asks again for minutes
        except subprocess.TimeoutExpired:
            attack.kill()
            out, err = attack.communicate()
    assert "the folder is open" not in err
    assert "THE CODE RAN" not in out
    if token == "own":  # the connection is made; only the files of the session stay closed
        assert "uthentication" not in err
    else:
        assert attack.returncode != 0


def test_no_log_of_ray_holds_the_password_of_the_command(private: dict[str, Any]):
    assert redaction.redacted("--store postgresql://me:tr0ub4dor@db/x") == "--store postgresql://me@db/x"
    files = [file for file in Path(private["folder"]).rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if b"tr0ub4dor" in file.read_bytes()]
