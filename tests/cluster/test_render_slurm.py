"""The batch script for Slurm: bash accepts it, and every setting reaches it unchanged."""

import shlex
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from loopscale.cluster.base import ClusterError
from loopscale.cluster.slurm import Slurm
from tests.cluster.wanted import HOSTILE, request


def slurm(**settings: object) -> Slurm:
    return Slurm.model_validate({"folder": "/shared"} | settings)


def test_bash_accepts_the_batch_script(tmp_path: Path):
    text = slurm(gpus_per_node=2, mem="8G", time="2-00:00:00", setup=["module load x"]).render(
        "slurm", request()
    )
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("value", [each for each in HOSTILE if "\\" not in each])
def test_settings_reach_the_script_unchanged(value: str, tmp_path: Path):
    cluster = slurm(folder=f"/shared/{value}", python=value, store=value, partition=value, mem=value)
    text = cluster.render("slurm", request(overrides={"a.b": value}))
    assert text.count("# --- the lines below are the same") == 1
    head = text.split("# --- the lines below are the same")[0]
    script = head + 'printf \'%s\\0\' "$folder" "$code" "$python" "$mem" "${study[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    said = done.stdout.split("\0")[:-1]
    assert said[:4] == [f"/shared/{value}", f"/shared/{value}/code/0123456789abcdef", value, value]
    assert said[4] == value
    assert said[said.index("--store") + 1] == value
    assert said[said.index("--set") + 1] == f"a.b={value}"
    assert not (tmp_path / "was-here").exists()
    lines = [line.removeprefix("#SBATCH ") for line in head.splitlines() if line.startswith("#SBATCH")]
    options = [word for line in lines for word in shlex.split(line)]
    assert len(options) == len(lines), "a value starts no option of its own"
    assert f"--partition={value}" in options
    assert f"--output=/shared/{value.replace('%', '%%')}/logs/%j.log" in options


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"folder": "shared"}, "is not absolute"),
        ({"folder": "/a\nb"}, "more than a line"),
        ({"partition": "a\n#SBATCH --uid=0"}, "more than a line"),
        ({"time": 43200}, "write it in quotes"),
        ({"time": "soon"}, "no time limit of Slurm"),
        ({"options": ["constraint=a100"]}, "no option of sbatch"),
    ],
)
def test_settings_that_slurm_would_misread_are_refused(settings: dict, said: str):
    with pytest.raises(ValidationError, match=said):
        slurm(**settings)


def test_a_missing_slurm_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        ClusterError, match="there is no sbatch here; install it, or use a machine that has sbatch"
    ):
        slurm(folder=str(tmp_path)).submit("slurm", request())
