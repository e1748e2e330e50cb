"""The blocks of cluster/README.md run as they stand."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.ports import free_port

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(3600)]


PORT = free_port()


@pytest.fixture
def net() -> Iterator[int]:
    """A number for the names of one walk. Its folder `/tmp/labNUMBER` claims the number, and is removed at the end."""
    for number in range(100, 200):
        folder = lab(number)
        try:
            folder.mkdir()
        except FileExistsError:  # of another run, or of a run that was killed
            continue
        if not _is_used(number):
            yield number
            shutil.rmtree(folder)
            return
        folder.rmdir()
    raise AssertionError("all names of the walk are taken")


def lab(net: int) -> Path:
    """A short path: Ray's sockets have to fit into 107 characters."""
    return Path(f"/tmp/lab{net}")


def _is_used(net: int) -> bool:
    words = ("link",), ("addr",), ("route",), ("netns",)
    seen = "".join(subprocess.run(["ip", *each], capture_output=True, text=True).stdout for each in words)
    return any(name in seen for name in (f"lb{net}", f"lab{net}-", f"10.{net}.77."))


def blocks() -> list[str]:
    text = (ROOT / "cluster" / "README.md").read_text()
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def elsewhere(text: str, folder: Path, net: int) -> str:
    """The same commands with names that nobody else uses on this machine."""
    for ours, theirs in (
        ("/tmp/lab", str(folder)),
        ("10.77.0.", f"10.{net}.77."),
        ("lab0", f"lb{net}"),
        ("lab$number", f"lb{net}n$number"),
        ("lab-", f"lab{net}-"),
        ("5544", str(PORT)),
    ):
        text = text.replace(ours, theirs)
    return text


def test_a_newcomer_gets_from_nothing_to_a_study_on_two_hosts(net: int):
    folder = lab(net)
    *walk, down = (elsewhere(block, folder, net) for block in blocks())
    assert len(walk) == 5
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    # The last block removes everything, also after a failure.
    down = "down() {\nset +e\n" + down + "}\n"
    script = f"cd {ROOT}\nset -euo pipefail\n{down}trap down EXIT\n" + "\n".join(walk)
    try:
        code, out, err = processes.outcome(processes.start(["bash", "-c", script], environment))
    except BaseException:  # the script was killed
        (tools,) = re.findall("^bin=.*$", "\n".join(walk), re.MULTILINE)
        subprocess.run(["bash", "-c", f"{tools}\n{down}down"], env=environment, capture_output=True)
        raise
    assert code == 0, (
        out + err + "".join(f"\n--- {log}\n{log.read_text()[-3000:]}" for log in sorted(folder.glob("*.log")))
    )
    assert "cost on lab: " in out
    assert re.search(r"quickstart is submitted to lab, as quickstart-1", out)
    assert re.search(r"quickstart-1 +succeeded", out)
    assert all(model in out.rsplit("succeeded", 1)[1] for model in ("algoformer", "gpt2", "looped"))
    assert not subprocess.run(["ip", "link", "show", f"lb{net}"], capture_output=True).stdout
