"""What scontrol and sacctmgr print, and the lines that follow from their limits."""

from dataclasses import replace

import pytest

from loopscale.cluster.slurm_queue import (
    WantedHosts,
    _records,
    association_problems,
    host_problems,
    megabytes,
    minutes,
    partition_problems,
)

WANTED = WantedHosts(2, 8, 1, "a100", "64G", "12:00:00", "gpu", "lab", "high")
PARTITION = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=lab,other AllowQos=ALL Default=NO MaxNodes=4 "
    "MaxTime=1-00:00:00 State=UP TRES=cpu=64"
)
NODE = (
    "NodeName={name} Arch=x86_64  CPUTot=16 CPULoad=0.1 Gres=gpu:a100:4(S:0-1),gpu:v100:1 OS=Linux 6.1.0 #1 SMP  "
    "RealMemory=257000 State={state} Partitions=gpu,long  BootTime=2026-01-01T00:00:00"
)


def partition(**changes: str) -> dict[str, str]:
    return _records(PARTITION)[0] | changes


def nodes(*states: str) -> list[dict[str, str]]:
    return _records("\n".join(NODE.format(name=f"n{n}", state=state) for n, state in enumerate(states)))


def texts(problems) -> list[tuple[bool, str]]:
    return [(problem.fatal, problem.text) for problem in problems]


def test_a_job_within_all_limits_has_no_problem():
    assert texts(partition_problems(WANTED, partition())) == []
    assert texts(host_problems(WANTED, "gpu", nodes("IDLE", "MIXED"))) == []
    assert texts(association_problems(WANTED, "lab|normal,high\nother|normal\n")) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"MaxTime": "02:00:00"},
            "ends jobs after 02:00:00, and the file asks for 12:00:00; write time_limit: '02:00:00'",
        ),
        (
            {"MaxNodes": "1"},
            "gives a job at most 1 hosts, and the file asks for 2; write nodes: 1, or mode: elastic",
        ),
        ({"AllowAccounts": "other"}, "refuses account lab; write one of other"),
        ({"DenyQos": "high,low"}, "refuses qos high; write another qos"),
        ({"State": "DOWN"}, "is down; take another partition"),
    ],
)
def test_a_limit_of_the_partition_is_one_line(changes: dict[str, str], said: str):
    ((fatal, text),) = texts(partition_problems(WANTED, partition(**changes)))
    assert fatal
    assert text.removesuffix(", because the next job resumes the study") == f"partition gpu {said}"


def test_hosts_that_the_partition_lacks_are_one_line():
    ((fatal, text),) = texts(host_problems(replace(WANTED, gpu_type="h100"), "gpu", nodes("IDLE", "IDLE")))
    assert fatal
    assert text.startswith(
        "partition gpu has 0 hosts with 8 CPUs, 1 h100, 64G of memory (GPU types: a100, v100)"
    )
    for change in ({"gpus": 5}, {"cpus": 32}, {"memory": "1T"}, {"nodes": 3}):
        ((fatal, _),) = texts(host_problems(replace(WANTED, **change), "gpu", nodes("IDLE", "IDLE")))
        assert fatal, change
    assert texts(host_problems(replace(WANTED, gpu_type=None, gpus=5), "gpu", nodes("IDLE", "IDLE"))) == []


def test_hosts_that_are_away_are_a_note():
    ((fatal, text),) = texts(host_problems(WANTED, "gpu", nodes("IDLE", "DOWN+DRAIN", "IDLE+DRAIN")))
    assert not fatal
    assert text == "only 1 of 3 fitting hosts of partition gpu are up; the job waits until 2 are up"


def test_an_account_or_qos_that_the_user_lacks_is_one_line():
    ((fatal, text),) = texts(association_problems(WANTED, "other|normal\n"))
    assert (fatal, text) == (True, "you have no account lab in Slurm; write account: one of other")
    ((fatal, text),) = texts(association_problems(WANTED, "lab|normal,long\n"))
    assert (fatal, text) == (True, "your account has no QOS high; write qos: one of normal, long")
    assert texts(association_problems(replace(WANTED, account=None), "lab|high\n")) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90),
        ("10:30", 10.5),
        ("2:00:00", 120),
        ("1-12", 2160),
        ("1-00:30:00", 1470),
        ("UNLIMITED", None),
    ],
)
def test_a_time_limit_is_read_in_all_forms(text: str, value: float | None):
    assert minutes(text) == value


def test_memory_is_read_with_its_unit():
    assert [megabytes(text) for text in ("512", "1024K", "2G", "1T")] == [512, 1, 2048, 2**20]
