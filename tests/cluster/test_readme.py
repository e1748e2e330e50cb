"""The blocks of cluster/README.md run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(1200)]


def blocks() -> list[str]:
    text = (ROOT / "cluster" / "README.md").read_text()
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def elsewhere(text: str, folder: Path, net: int) -> str:
    """The same commands with other names, because another run may use this machine."""
    for ours, theirs in (
        ("/tmp/lab", str(folder)),
        ("10.77.0.", f"10.{net}.77."),
        ("lab0", f"lb{net}"),
        ("lab$number", f"lb{net}n$number"),
        ("lab-", f"lab{net}-"),
        ("5544", str(20000 + net)),
    ):
        text = text.replace(ours, theirs)
    return text


def test_a_newcomer_gets_from_nothing_to_a_study_on_two_hosts(tmp_path: Path):
    net = 100 + os.getpid() % 100
    folder = Path(f"/tmp/lab{net}")  # short: Ray's sockets have to fit into 107 characters
    *walk, down = (elsewhere(block, folder, net) for block in blocks())
    assert len(walk) == 5
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    # The last block removes everything, also after a failure.
    script = "set -euo pipefail\ndown() {\nset +e\n" + down + "}\ntrap down EXIT\n" + "\n".join(walk)
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1100
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output + "".join(
        f"\n--- {log}\n{log.read_text()[-3000:]}" for log in sorted(folder.glob("*.log"))
    )
    assert "cost on lab: " in done.stdout
    assert re.search(r"quickstart is submitted to lab, as quickstart-1", done.stdout)
    assert re.search(r"quickstart-1 +succeeded", done.stdout)
    assert all(model in done.stdout.rsplit("succeeded", 1)[1] for model in ("algoformer", "gpt2", "looped"))
    assert not subprocess.run(["ip", "link", "show", f"lb{net}"], capture_output=True).stdout
    subprocess.run(["rm", "-rf", folder], check=True)
