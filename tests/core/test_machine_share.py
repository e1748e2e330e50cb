"""The CPUs and the memory that control groups leave to a process, in versions 1 and 2."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopscale.core.machine_share import main_memory, trials_per_machine, usable_cpus, usable_memory

CPUS = float(len(os.sched_getaffinity(0)))
SHARE = "from loopscale.core.machine_share import usable_cpus; print(usable_cpus())"


def process(folder: Path, cgroup: str, mounts: dict[str, str]) -> Path:
    """A folder of /proc with one line of the process's groups, and one mount for each kind."""
    (folder / "proc").mkdir()
    (folder / "proc/cgroup").write_text(f"7:freezer:/elsewhere\n{cgroup}\n")
    lines = [f"31 23 0:29 {root} {folder}/groups rw,relatime - {kind}" for root, kind in mounts.items()]
    (folder / "proc/mountinfo").write_text("23 1 8:1 / / rw - ext4 /dev/root rw\n" + "\n".join(lines) + "\n")
    return folder / "proc"


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


VERSION_1 = {"/": "cgroup cgroup rw,cpuacct,cpu"}
VERSION_2 = {"/": "cgroup2 cgroup2 rw"}


@pytest.mark.parametrize(
    ("cgroup", "mounts", "group", "limit"),
    [
        (
            "3:cpu,cpuacct:/job",
            VERSION_1,
            "job",
            {"cpu__cfs_quota_us": "50000", "cpu__cfs_period_us": "100000"},
        ),
        ("0::/job", VERSION_2, "job", {"cpu__max": "50000 100000"}),
        ("0::/job/step", VERSION_2, "job", {"cpu__max": "50000 100000"}),
        ("0::/docker/job", {"/docker/job": "cgroup2 cgroup2 rw"}, ".", {"cpu__max": "50000 100000"}),
        ("0::/../job", VERSION_2, ".", {"cpu__max": "50000 100000"}),
    ],
    ids=[
        "version 1",
        "version 2",
        "the group above",
        "the mount shows the own group",
        "a group beside the mount",
    ],
)
def test_a_quota_of_half_a_cpu_counts(
    tmp_path: Path, cgroup: str, mounts: dict[str, str], group: str, limit: dict[str, str]
):
    write(tmp_path / "groups" / group, **limit)
    assert usable_cpus(process(tmp_path, cgroup, mounts)) == 0.5


@pytest.mark.parametrize(
    "limit",
    [
        {},
        {"cpu__max": "max 100000"},
        {"cpu__max": "100000000 100000"},
        {"cpu__cfs_quota_us": "-1", "cpu__cfs_period_us": "100000"},
    ],
    ids=["no files", "max", "more than the machine has", "no quota"],
)
def test_without_a_quota_the_affinity_counts(tmp_path: Path, limit: dict[str, str]):
    write(tmp_path / "groups/job", **limit)
    assert usable_cpus(process(tmp_path, "0::/job", VERSION_2)) == CPUS


def test_the_least_limit_of_memory_counts(tmp_path: Path):
    write(tmp_path / "groups", memory__max="max")
    write(tmp_path / "groups/job", memory__max=f"{2**30}")
    write(tmp_path / "groups/job/step", memory__max=f"{2**31}")
    assert usable_memory(process(tmp_path, "0::/job/step", VERSION_2)) == 1.0


def test_the_largest_number_of_version_1_is_no_limit(tmp_path: Path):
    write(tmp_path / "groups/job", memory__limit_in_bytes="9223372036854771712")
    mounts = {"/": "cgroup cgroup rw,memory"}
    assert usable_memory(process(tmp_path, "4:memory:/job", mounts)) == main_memory() > 0


def test_a_system_without_control_groups_has_the_whole_machine(tmp_path: Path):
    assert usable_cpus(tmp_path) == CPUS
    assert usable_memory(tmp_path) == main_memory()


@contextmanager
def real_group() -> Iterator[Path]:
    """A control group of this machine with half a CPU. Needs root."""
    version_2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    group = Path("/sys/fs/cgroup" if version_2 else "/sys/fs/cgroup/cpu") / f"loopscale-test-{os.getpid()}"
    group.mkdir()
    try:
        if version_2:
            write(group, cpu__max="50000 100000")
        else:
            write(group, cpu__cfs_quota_us="50000")
        yield group
    finally:
        group.rmdir()


@pytest.mark.hosts
def test_a_process_in_a_real_group_counts_half_a_cpu():
    with real_group() as group:
        enter = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -c '{SHARE}'"
        done = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, check=True)
    assert float(done.stdout) == 0.5


def test_a_shared_gpu_takes_whole_trials():
    assert trials_per_machine({"gpu": 0.4}, cpus=8, gpus=3, memory=None) == 6
    assert trials_per_machine({"gpu": 2.0, "cpu": 1.0}, cpus=8, gpus=3, memory=None) == 1
    assert trials_per_machine({"gpu": 1.0}, cpus=8, gpus=0, memory=None) == 0
    assert trials_per_machine({"cpu": 0.1}, cpus=1, gpus=0, memory=None) == 10
