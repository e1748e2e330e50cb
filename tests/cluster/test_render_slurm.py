"""The batch script for Slurm: bash accepts it, and every setting reaches it unchanged."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from loopscale.cluster.base import ClusterError
from loopscale.cluster.slurm import Slurm
from tests.cluster.wanted import HOSTILE, request


def slurm(**settings: object) -> Slurm:
    return Slurm.model_validate({"folder": "/shared"} | settings)


def test_bash_accepts_the_batch_script(tmp_path: Path):
    text = slurm(gpus_per_node=2, memory_gib=8, time_limit="2 d", setup=["module load x"]).render(
        "slurm", request()
    )
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("value", [each for each in HOSTILE if "\\" not in each])
def test_settings_reach_the_script_unchanged(value: str, tmp_path: Path):
    cluster = slurm(folder=f"/shared/{value}", python=value, store=f"/{value}", partition=value, qos=value)
    text = cluster.render("slurm", request(overrides={"a.b": value}))
    assert text.count("# --- the lines below are the same") == 1
    head = text.split("# --- the lines below are the same")[0]
    script = head + 'printf \'%s\\0\' "$folder" "$code" "$python" "${study[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    said = done.stdout.split("\0")[:-1]
    assert said[:4] == [f"/shared/{value}", f"/shared/{value}/code/0123456789abcdef", value, value]
    assert said[said.index("--store") + 1] == f"/{value}"
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
        ({"time_limit": 43200}, "in quotes"),
        ({"time_limit": "soon"}, "is no time limit; write 12 h"),
        ({"options": ["constraint=a100"]}, "no option of sbatch"),
        ({"storage": "$SCRATCH/loopscale"}, "neither absolute nor an address"),
        ({"store": "records"}, "neither absolute nor an address"),
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


def elastic(**settings: object) -> Slurm:
    return slurm(mode="elastic", nodes=4, **settings)


def worker_script(text: str) -> str:
    """The script of a worker job, as the driver's job would write it."""
    end = "\nEND-OF-THE-WORKER-JOB\n}\n"
    function = text[text.index("write_worker_job() {") : text.index(end)] + end + "write_worker_job\n"
    return subprocess.run(["bash", "-c", function], capture_output=True, text=True, check=True).stdout


def sbatch_options(script: str) -> list[str]:
    lines = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]
    return [word for line in lines for word in shlex.split(line)]


@pytest.mark.parametrize("value", [each for each in HOSTILE if "\\" not in each])
def test_settings_reach_the_script_of_a_worker_job_unchanged(value: str, tmp_path: Path):
    cluster = elastic(
        folder=f"/shared/{value}", python=value, partition=value, storage=f"/{value}", time_limit="4 h"
    )
    script = worker_script(cluster.render("slurm", request()))
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    head = script.split("# --- the lines below are the same")[0]
    print_all = head + 'printf \'%s\\0\' "$folder" "$python" "${check[@]}"\n'
    done = subprocess.run(["bash", "-c", print_all], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split("\0")[:-1] == [f"/shared/{value}", value, "--storage", f"/{value}"]
    assert not (tmp_path / "was-here").exists()
    assert f"--partition={value}" in sbatch_options(script)


def test_an_elastic_study_has_a_small_job_for_its_driver_and_one_host_for_each_worker_job():
    cluster = elastic(
        gpu="a100:2",
        cpus_per_task=8,
        memory_gib=64,
        account="lab",
        qos="high",
        time_limit="4 h",
        options=["--constraint=nvlink"],
        driver={"cpus": 1, "memory_gib": 2, "partition": "cpu", "time_limit": "1 d"},
    )
    text = cluster.render("slurm", request())
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    driver = sbatch_options(text.split("write_worker_job")[0])
    worker = sbatch_options(worker_script(text))
    assert {"--nodes=1", "--cpus-per-task=1", "--mem=2G", "--partition=cpu", "--time=1-00:00:00"} <= set(
        driver
    )
    assert not [option for option in driver if "gpu" in option or "constraint" in option]
    assert {"--gpus-per-node=a100:2", "--mem=64G", "--time=04:00:00", "--constraint=nvlink"} <= set(worker)
    assert {"--account=lab", "--qos=high"} <= set(driver) & set(worker)
    assert "--no-requeue" in worker, "the driver's job renews them"
    assert "--workers 16" in text, "four hosts with two GPUs, and half a GPU for each trial"
    assert "elastic=(--most 4 --slots 4 --idle 300)" in text


@pytest.mark.parametrize("runtime", ["apptainer", "pyxis"])
@pytest.mark.parametrize("mode", ["gang", "elastic"])
def test_every_python_of_the_study_runs_in_the_container(runtime: str, mode: str, tmp_path: Path):
    container = {"image": "it's an image", "runtime": runtime, "options": ["--x=a b"]}
    text = slurm(mode=mode, folder="/shared/a b", gpus_per_node=1, container=container).render("s", request())
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    scripts = [text] if mode == "gang" else [text, worker_script(text)]
    for script in scripts:
        start = script.index("folder=")
        variables = script[start : script.index("# --- the lines below")]
        variables = variables.split("write_worker_job")[0]
        case = script[script.rindex("here=()") : script.index("esac", script.rindex("here=()"))] + "esac\n"
        show = f"{variables}\nSLURMD_NODENAME=n1 SLURM_CPUS_PER_TASK=6\n{case}\nprintf '%s\\0' \"${{here[@]}}\"\n"
        done = subprocess.run(["bash", "-c", show], capture_output=True, text=True, check=True, cwd=tmp_path)
        words = done.stdout.split("\0")[:-1]
        assert "--x=a b" in words
        if runtime == "apptainer":
            assert words[:4] == ["apptainer", "exec", "--nv", "--bind"]
            assert words[4] == "/shared/a b"
            assert words[-1] == "it's an image"
        else:
            assert words[0] == "srun"
            assert {"--container-image=it's an image", "--overlap", "--cpus-per-task=6"} <= set(words)
            assert "--container-mounts=/shared/a b:/shared/a b,/tmp:/tmp" in words
        calls = [line for line in script.splitlines() if '"$python" -m' in line and "ray=(" not in line]
        assert all('${here[@]+"${here[@]}"}' in line for line in calls)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gpu": "a100:x"}, "is no GPU of Slurm"),
        ({"gpu": "a100:1", "gpus_per_node": 1}, "both give the GPUs of a host"),
        ({"idle_seconds": 60}, "idle_seconds is for mode: elastic"),
        ({"driver": {"cpus": 1}}, "driver is for mode: elastic"),
        ({"array_limit": 2}, "array_limit is for mode: elastic"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict, said: str):
    with pytest.raises(ValidationError, match=said):
        slurm(**settings)


def test_the_home_folder_is_written_out_because_the_script_quotes_paths(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/me")
    container = {"image": "~/loopscale.sif"}
    text = slurm(folder="~/runs", python="~/env/bin/python", storage="~/c", container=container).render(
        "s", request()
    )
    lines = text.splitlines()
    assert {"folder=/home/me/runs", "python=/home/me/env/bin/python", "image=/home/me/loopscale.sif"} <= {
        *lines
    }
    assert "--storage /home/me/c" in text


@pytest.mark.parametrize("mode", ["gang", "elastic"])
def test_a_container_sees_the_records_and_checkpoints_outside_of_the_folder(mode: str):
    places = {"store": "/shared/records", "storage": "/scratch/c", "container": {"image": "x.sif"}}
    text = slurm(mode=mode, **places).render("s", request())
    scripts = [text] if mode == "gang" else [text, worker_script(text)]
    for script in scripts:
        assert script.count("mounts=,/scratch/c:/scratch/c\n") == (
            2 if script is text and mode == "elastic" else 1
        )
        assert '--bind "$folder$mounts"' in script
        assert ",/tmp:/tmp$mounts" in script


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"python": "/nowhere/python"}, "No such file or directory"),
        ({"python": "empty/bin/python"}, "there is no package ray"),
        (
            {"container": {"image": "none.sif"}, "setup": ["apptainer() { echo no image >&2; return 255; }"]},
            "no image",
        ),
    ],
)
def test_a_job_without_the_packages_ends_at_once_with_one_line(settings: dict, said: str, tmp_path: Path):
    text = slurm(folder=str(tmp_path), **settings).render("s", request())
    (code := tmp_path / "code/0123456789abcdef").mkdir(parents=True)
    empty = code / "empty/bin/python"
    empty.parent.mkdir(parents=True)
    empty.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')  # without site-packages
    empty.chmod(0o755)
    job = f"9{os.getpid()}"
    slurm_sets = {"SLURM_JOB_ID": job, "SLURM_JOB_NUM_NODES": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash"], input=text, text=True, capture_output=True, env=slurm_sets, timeout=60)
    run = tmp_path / "jobs" / job
    assert done.returncode == 2, done.stdout + done.stderr
    assert (run / "exit").read_text() == "2\n"
    [problem] = (run / "problem").read_text().splitlines()
    assert said in problem
    assert problem.endswith("; correct `setup`, `python` or `container` in the cluster's file")
    assert not Path(f"/tmp/loopscale-{job}.lock").exists()


@pytest.mark.parametrize(
    ("says", "starts", "result"),
    [("The current node timed out during startup.", 3, 1), ("No space left on device", 1, 1), ("", 1, 0)],
)
def test_a_host_that_is_too_slow_for_ray_starts_ray_three_times(
    tmp_path: Path, says: str, starts: int, result: int
):
    function = re.search(r"^start_ray\(\) \{.*?^\}$", slurm().render("slurm", request()), re.M | re.S)
    assert function
    ray = tmp_path / "ray"
    ray.write_text(f"#!/bin/sh\necho start >> {tmp_path}/starts\necho {says!r}\nexit {result}\n")
    ray.chmod(0o755)
    ended = subprocess.run(
        ["bash", "-c", f'set -u -m\n{function[0]}\nstart_ray {tmp_path}/log {ray} --block &\nwait "$!"'],
        timeout=60,
    )
    assert ended.returncode == result
    assert (tmp_path / "starts").read_text().splitlines() == ["start"] * starts
    assert (tmp_path / "log").read_text().strip() == says
