"""Parts of every Slurm of the tests: common settings, and munge, which proves who sends a message."""

import os
from pathlib import Path

COMMON = """\
AuthType=auth/munge
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=10
SchedulerParameters=sched_interval=1,batch_sched_delay=0
"""
PLACES = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


def make_key(key: Path) -> None:
    """A new secret that all hosts of a Slurm share."""
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)


def munged(folder: Path, key: Path) -> list[str]:
    """The command of a munged with its files in `folder`."""
    places = {option: folder / f"munge.{suffix}" for option, suffix in PLACES.items()} | {"key-file": key}
    return ["munged", "--force", "--foreground", *(f"--{option}={place}" for option, place in places.items())]
