"""What Slurm says of a job before the job is queued: partitions, hosts, time limits, accounts and QOS.

Slurm queues many jobs that can never start, and names the reason only in `squeue`. So this module reads the limits with
`scontrol` and `sacctmgr`, and asks `sbatch --test-only` last.
"""

import getpass
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loopscale.cluster.base import ClusterError, ClusterProblem
from loopscale.cluster.commands import run_command

Run = Callable[[Sequence[str]], str]
NEVER = frozenset({"UNLIMITED", "INFINITE", "NONE", "N/A", ""})
PART = re.compile(r"([A-Za-z][A-Za-z0-9_:]*)=(.*?)(?= [A-Za-z][A-Za-z0-9_:]*=|$)")
AWAY = ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "POWERED_DOWN", "MAINT")
BUSY = ("busy", "down", "drained")
"""Words of `sbatch --test-only` for hosts that may come back."""


@dataclass(frozen=True)
class WantedHosts:
    """The hosts that a job asks for."""

    nodes: int
    cpus: int
    gpus: int
    gpu_type: str | None
    memory: str | None
    """Memory of each host, as Slurm writes it: 64G."""
    time: str | None
    partition: str | None
    account: str | None
    qos: str | None


def slurm_problems(wanted: WantedHosts, script: str, run: Run = run_command) -> list[ClusterProblem]:
    """The problems of a job, without the job in the queue. Raises ClusterError if Slurm does not answer."""
    partitions = {
        each["PartitionName"]: each for each in _records(run(["scontrol", "show", "partition", "-o"]))
    }
    name = wanted.partition or next(
        (key for key, each in partitions.items() if each.get("Default") == "YES"), None
    )
    problems = list[ClusterProblem]()
    for part in (name or "").split(","):
        if (partition := partitions.get(part)) is None:
            known = ", ".join(partitions)
            what = (
                f"there is no partition {part}"
                if part
                else "no partition is the default, and the file names none"
            )
            problems.append(ClusterProblem(True, f"{what}; write partition: one of {known}"))
            continue
        problems += partition_problems(wanted, partition)
        nodes = [each for each in _records(run(["scontrol", "show", "node", "-o"])) if _lies_in(each, part)]
        problems += host_problems(wanted, part, nodes)
    problems += _account_problems(wanted, run)
    if not any(problem.fatal for problem in problems):
        problems += _test_only(script, certain=not problems)
    return problems


def partition_problems(wanted: WantedHosts, partition: Mapping[str, str]) -> Iterator[ClusterProblem]:
    """The limits of a partition that the job exceeds."""
    name, limit = partition["PartitionName"], partition.get("MaxTime", "UNLIMITED")
    if (state := partition.get("State", "UP")) not in ("UP", "DRAIN", "INACTIVE"):
        yield ClusterProblem(True, f"partition {name} is {state.lower()}; take another partition")
    elif state != "UP":
        yield ClusterProblem(False, f"partition {name} is {state.lower()}; the job waits until it is up")
    if wanted.time and (most := minutes(limit)) is not None and (minutes(wanted.time) or 0) > most:
        what = f"partition {name} ends jobs after {limit}, and the file asks for {wanted.time}"
        yield ClusterProblem(
            True, f"{what}; write time_limit: '{limit}', because the next job resumes the study"
        )
    most_nodes = partition.get("MaxNodes", "UNLIMITED")
    if most_nodes.isdigit() and wanted.nodes > int(most_nodes):
        what = (
            f"partition {name} gives a job at most {most_nodes} hosts, and the file asks for {wanted.nodes}"
        )
        yield ClusterProblem(True, f"{what}; write nodes: {most_nodes}, or mode: elastic")
    for what, value in (("Accounts", wanted.account), ("Qos", wanted.qos)):
        word = what.removesuffix("s").lower() if what == "Accounts" else "qos"
        allowed, denied = partition.get(f"Allow{what}", "ALL"), partition.get(f"Deny{what}", "")
        if value and allowed != "ALL" and value not in allowed.split(","):
            yield ClusterProblem(True, f"partition {name} refuses {word} {value}; write one of {allowed}")
        elif value and value in denied.split(","):
            yield ClusterProblem(True, f"partition {name} refuses {word} {value}; write another {word}")


def host_problems(
    wanted: WantedHosts, partition: str, nodes: Sequence[Mapping[str, str]]
) -> Iterator[ClusterProblem]:
    """A fatal problem if the partition has too few fitting hosts, a note if too few of them are up."""
    fitting = [node for node in nodes if _fits(wanted, node)]
    if len(fitting) < wanted.nodes:
        gpus = f", {wanted.gpus} {wanted.gpu_type or 'GPU'}" if wanted.gpus else ""
        memory = f", {wanted.memory} of memory" if wanted.memory else ""
        kinds = sorted({gpu for node in nodes for gpu in _gpus(node) if gpu})
        types = f" (GPU types: {', '.join(kinds)})" if kinds and wanted.gpus else ""
        what = (
            f"partition {partition} has {len(fitting)} hosts with {wanted.cpus} CPUs{gpus}{memory}{types}, "
            f"and a job needs {wanted.nodes}"
        )
        yield ClusterProblem(True, f"{what}; ask for less, or take another partition")
        return
    up = [node for node in fitting if not any(word in node.get("State", "") for word in AWAY)]
    if len(up) < wanted.nodes:
        what = f"only {len(up)} of {len(fitting)} fitting hosts of partition {partition} are up"
        yield ClusterProblem(False, f"{what}; the job waits until {wanted.nodes} are up")


def association_problems(wanted: WantedHosts, text: str) -> Iterator[ClusterProblem]:
    """The account and the QOS, against the lines `account|qos,qos` of the user's associations."""
    rows = [line.split("|") for line in text.splitlines() if line.strip()]
    accounts = {row[0]: row[1].split(",") if len(row) > 1 and row[1] else [] for row in rows}
    if wanted.account and accounts and wanted.account not in accounts:
        known = ", ".join(accounts)
        yield ClusterProblem(
            True, f"you have no account {wanted.account} in Slurm; write account: one of {known}"
        )
        return
    offered = accounts.get(wanted.account or "", [qos for each in accounts.values() for qos in each])
    if wanted.qos and offered and wanted.qos not in offered:
        known = ", ".join(dict.fromkeys(offered))
        yield ClusterProblem(True, f"your account has no QOS {wanted.qos}; write qos: one of {known}")


def minutes(text: str) -> float | None:
    """A time limit of Slurm in minutes; None for no limit. Forms: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    if text.upper() in NEVER:
        return None
    days, dash, rest = text.rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    if dash:
        hours, mins, secs = [*parts, 0.0, 0.0][:3]
    else:
        hours, mins, secs = {1: [0.0, *parts, 0.0], 2: [0.0, *parts], 3: parts}[len(parts)]
    return float(days or 0) * 1440 + hours * 60 + mins + secs / 60


def megabytes(text: str) -> float:
    """Memory of Slurm in MiB. A number without a unit is in MiB."""
    units = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
    unit = text[-1:].upper()
    return float(text[:-1]) * units[unit] if unit in units else float(text)


def _records(text: str) -> list[dict[str, str]]:
    """The lines `Key=Value Key=Value` of scontrol."""
    lines = [line.strip() for line in text.splitlines() if "=" in line]
    return [{key: value.strip() for key, value in PART.findall(line)} for line in lines]


def _lies_in(node: Mapping[str, str], partition: str) -> bool:
    return partition in node.get("Partitions", "").split(",")


def _gpus(node: Mapping[str, str]) -> dict[str, int]:
    """GPUs of a host by type; the type is empty if the site names none."""
    found = dict[str, int]()
    for resource in re.sub(r"\([^)]*\)", "", node.get("Gres", "")).split(","):
        name, *parts = resource.split(":")
        if name == "gpu" and parts:
            kind, count = (parts[0], parts[1]) if len(parts) > 1 else ("", parts[0])
            found[kind] = found.get(kind, 0) + int(re.sub(r"\D", "", count) or 0)
    return found


def _fits(wanted: WantedHosts, node: Mapping[str, str]) -> bool:
    gpus = _gpus(node)
    count = gpus.get(wanted.gpu_type, 0) if wanted.gpu_type else sum(gpus.values())
    try:
        memory = not wanted.memory or float(node.get("RealMemory", "inf")) >= megabytes(wanted.memory)
    except ValueError:  # sbatch judges the text
        memory = True
    return memory and count >= wanted.gpus and int(node.get("CPUTot", "0")) >= wanted.cpus


def _user() -> str:
    """The name of the user; the number in a container where the user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _account_problems(wanted: WantedHosts, run: Run) -> Iterator[ClusterProblem]:
    if not (wanted.account or wanted.qos):
        return
    config = run(["scontrol", "show", "config"])
    if re.search(r"^AccountingStorageType\s*=\s*(accounting_storage/none|\(null\))", config, re.MULTILINE):
        return
    words = ["sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={_user()}"]
    try:
        yield from association_problems(wanted, run([*words, "format=account,qos"]))
    except ClusterError as problem:
        yield ClusterProblem(False, f"the account and the QOS are not checked: {problem}")


def _test_only(script: str, certain: bool) -> Iterator[ClusterProblem]:
    """Slurm's own judgement of the script. A fitting host that is away is no host for Slurm, so it is not certain."""
    try:
        run_command(["sbatch", "--test-only"], script)
    except ClusterError as problem:
        fatal = certain and not any(word in str(problem) for word in BUSY)
        yield ClusterProblem(fatal, str(problem))
