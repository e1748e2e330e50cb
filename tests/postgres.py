"""A private PostgreSQL server on this machine, for tests and benchmarks."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

PROGRAMS = Path("/usr/lib/postgresql")


@contextmanager
def running_postgres() -> Iterator[str]:
    """The address of an empty database on a server that runs meanwhile.

    Raises FileNotFoundError if PostgreSQL is not installed.
    """
    tools = sorted(PROGRAMS.glob("*/bin"))
    if not tools:
        raise FileNotFoundError(f"no PostgreSQL below {PROGRAMS}: apt-get install postgresql")
    # Not below pytest's folders, which other users cannot read.
    folder, port = Path(tempfile.mkdtemp(prefix="loopscale-postgres-")), free_port()
    as_user: list[str] = []
    if os.getuid() == 0:  # PostgreSQL refuses to be run by root
        shutil.chown(folder, "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    data = str(folder / "data")
    control = [*as_user, str(tools[-1] / "pg_ctl"), "-D", data, "-w"]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    _quietly([*as_user, str(tools[-1] / "initdb"), "-D", data, "-U", "loopscale", "--auth=trust"], folder)
    _quietly([*control, "-l", f"{folder}/log", "-o", options, "start"], folder)
    try:
        yield f"postgresql+psycopg://loopscale@127.0.0.1:{port}/postgres"
    finally:
        _quietly([*control, "-m", "immediate", "stop"], folder)
        shutil.rmtree(folder)


def _quietly(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout.decode()
