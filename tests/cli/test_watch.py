"""`loopscale watch`: the address, the end by Ctrl-C, and mistakes."""

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest


@pytest.mark.slow
def test_watch_prints_an_address_serves_the_study_and_ends_with_ctrl_c(records: Path):
    command = [sys.executable, "-m", "loopscale.cli.main", "watch", "tiny", "--store", str(records)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout
        line = watching.stdout.readline()
        assert line.startswith("the live page of tiny is at http://127.0.0.1:")
        url = line.split("; ")[0].rpartition(" ")[2]
        with urllib.request.urlopen(f"{url}events") as events:
            assert events.readline() == b"event: state\n"
            watching.send_signal(signal.SIGINT)
            assert b"event: end\n" in events.readlines()
        out, err = watching.communicate(timeout=300)
    assert (watching.returncode, out, err) == (0, "", "")


def test_a_study_without_records_and_a_wrong_name_are_one_line_each(
    loopscale, records: Path, study_file: Path
):
    (other := study_file.with_name("other.yaml")).write_text(study_file.read_text())
    answer = loopscale("watch", other, "--store", records)
    assert answer.code == 2
    assert answer.err == f"no records of other in {records} yet; `loopscale run other` makes them\n"
    answer = loopscale("watch", "tinny", "--store", records)
    assert answer.code == 2
    assert "did you mean tiny" in answer.err
    assert answer.err.count("\n") == 1


def test_a_cluster_names_the_records_of_the_page(
    loopscale, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster/lab.yaml").write_text(f"kind: local\nstore: {records}\n")
    answer = loopscale("watch", "tinny", "--cluster", "lab")
    assert answer.code == 2
    assert "did you mean tiny" in answer.err
    answer = loopscale("watch", "tiny", "--cluster", "lap")
    assert answer.code == 2
    assert "lab" in answer.err
    assert answer.err.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(loopscale, records: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = loopscale("watch", "tiny", "--store", records, "--port", port)
    assert answer.code == 2
    assert answer.err.startswith(f"cannot listen on 127.0.0.1:{port} (address already in use); ")


def test_a_port_without_a_page_is_a_mistake(loopscale, study_file: Path):
    answer = loopscale("run", study_file, "--port", 8000)
    assert (answer.code, answer.err) == (
        2,
        "--port is the port of the live page; add --watch, or leave --port out\n",
    )
