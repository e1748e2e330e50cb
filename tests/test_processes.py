"""The helpers of the tests themselves: no program outlives a failed wait, and a port stays with its test."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from tests import processes
from tests.ports import free_port

FAMILY = """
import os, subprocess, sys, time
child = "import os, time; os.setpgrp(); print(os.getpid(), flush=True); time.sleep(1000)"
subprocess.Popen([sys.executable, "-c", child])
time.sleep(1000)
"""
"""A program with a child in a group of its own, as Ray's processes are."""


@pytest.mark.parametrize("wait", ["until", "outcome", "end of the test"])
def test_a_failed_wait_ends_the_program_and_its_children(wait: str):
    process = processes.start([sys.executable, "-c", FAMILY])
    assert process.stdout
    child = psutil.Process(int(process.stdout.readline()))
    assert os.getpgid(child.pid) != process.pid
    if wait == "until":
        with pytest.raises(AssertionError, match=r"not within 0\.1 s"):
            processes.wait_until(lambda: False, process, 0.1)
    elif wait == "outcome":
        with pytest.raises(subprocess.TimeoutExpired):
            processes.outcome(process, 0.1)
    else:
        processes.end_all()
    assert process.returncode < 0
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert processes.session_of(process) == []


def test_a_program_hears_signals_that_the_tests_ignore():
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        command = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGHUP).name)"]
        assert processes.outcome(processes.start(command)) == (0, "SIG_DFL\n", "")
    finally:
        signal.signal(signal.SIGHUP, earlier)


def test_a_free_port_refuses_clients_and_takes_servers_again_and_again():
    port = free_port()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with (
            socket.create_server(("127.0.0.1", port)),  # with SO_REUSEADDR, as servers have
            socket.create_connection(("127.0.0.1", port)),
        ):
            pass
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
