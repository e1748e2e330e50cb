"""The connection to Ray: a cluster at an address, or a private Ray on this machine.

A Ray without protection runs code for everyone who reaches one of its ports. The private Ray listens on 127.0.0.1
alone. A token of its own, which no file holds, keeps other users of the machine out. Its folder, with the sockets and
logs of Ray, can be read by its user alone.
"""

import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker
from ray._raylet import (
    AuthenticationTokenLoader,  # pyright: ignore[reportAttributeAccessIssue]
    Config,  # pyright: ignore[reportAttributeAccessIssue]
)
from ray.job_config import JobConfig
from ray.tune.execution import class_cache
from typing_extensions import override

from loopscale.core.ray_environment import private_variables
from loopscale.core.temporary import FOLDER_PREFIX, marked
from loopscale.errors import RunError
from loopscale.redaction import redacted
from loopscale.runner.machine import OBJECT_STORE_BYTES

LONGEST_FOLDER = 38
"""Characters. The path of a socket has at most 107 characters, and Ray needs the rest of them."""
RANDOM = 8
"""Characters that `mkdtemp` adds to a name."""
SHORT_PLACES = ("/tmp", "/var/tmp")
"""Folders for the sockets of Ray where the folder for temporary files has a long path."""
WATCH_SECONDS = 1.0
"""Time between two looks at the processes of Ray."""
PATIENCE_SECONDS = 10.0
"""Time in which the run may end by itself after the death of Ray. Ray's core may block for minutes."""
SERVERS = {"gcs_server": "the head process of Ray (gcs_server)", "raylet": "the host process of Ray (raylet)"}
"""The processes of a private Ray without which no trial goes on."""
BUSY = "run again when the machine is less busy, `uptime` shows its load"
REMEDY = "look for a lack of memory or disk, `df -h /tmp` and `dmesg` show both"


class RayFailed(RunError):
    """Ray has not started, or one of its processes has died."""


class RaySession:
    """A connection to Ray, and a watch of the processes of a private Ray."""

    def __init__(self) -> None:
        self.failure = ""
        """Why no trial can go on: a process of Ray has died. Empty while all live."""
        self.cluster = False
        """Whether this is a cluster, which may have several hosts."""
        self._over = threading.Event()

    def watch(self, give_up: Callable[[str], None]) -> None:
        """Watch the processes until the session ends.

        If the session has not ended PATIENCE_SECONDS after a death, `give_up` is called, from the thread of the watch.
        """
        node = ray_worker._global_node
        processes = node.all_processes if node and node.head else {}
        watched = [(name, each.process) for kind, name in SERVERS.items() for each in processes.get(kind, [])]
        while not self._over.wait(WATCH_SECONDS):
            if dead := next((name for name, process in watched if process.poll() is not None), None):
                self.failure = f"{dead} has died; {REMEDY}"
                if not self._over.wait(PATIENCE_SECONDS):
                    give_up(self.failure)
                return

    def end(self) -> None:
        ray.shutdown()
        self._over.set()


@contextmanager
def ray_session(cpus: int, address: str | None, give_up: Callable[[str], None]) -> Iterator[RaySession]:
    """Connect to the cluster at `address`, or start a private Ray with `cpus` CPUs and all GPUs of this machine.

    `give_up` ends this process. A watch calls it with a message if a process of the private Ray has died, and the
    driver does not notice: the core of Ray may block the driver for minutes.

    Raises RayFailed.
    """
    session = RaySession()
    with _entrypoint_without_password():
        try:
            if address:
                _init(f"the Ray cluster at {address} does not take this driver", address=address)
                session.cluster = True
                yield session
                return
            with _private_environment(session) as folder, _inherited_environment():
                options = {"num_cpus": cpus, "include_dashboard": False, "_temp_dir": f"{folder}/r"}
                options |= {"object_store_memory": OBJECT_STORE_BYTES, "_plasma_directory": folder}
                with _deaf_to_hang_ups():
                    what = "Ray does not start on this machine"
                    _init(what, address="local", job_config=ImportPath(), **options)
                watch = threading.Thread(
                    target=session.watch, args=[give_up], name="watch of Ray", daemon=True
                )
                watch.start()
                yield session
        finally:
            session.end()


class ImportPath(JobConfig):
    """The workers import modules from the folders that this process imports from.

    Ray 2.60 always adds the working folder. A file `torch.py` in that folder would then replace torch in the workers.
    """

    def __init__(self) -> None:
        folders = [os.path.dirname(os.path.realpath(sys.argv[0])), os.getcwd()]
        known = {os.path.realpath(folder) for folder in sys.path}  # an empty name is the working folder
        super().__init__(
            _py_driver_sys_path=[folder for folder in folders if os.path.realpath(folder) in known]
        )

    @override
    def _runtime_env_has_working_dir(self) -> bool:
        return True  # so Ray adds no folder of its own choice


@contextmanager
def _deaf_to_hang_ups() -> Iterator[None]:
    """Processes that start in the context ignore SIGHUP. The driver ends them in order when its terminal closes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _init(what: str, **options: Any) -> None:
    """Call `ray.init`. Raises RayFailed with the reason."""
    try:
        ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as problem:  # Ray 2.60 raises plain exceptions here
        reason = next(
            (line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__
        )
        remedy = BUSY if "timed out" in reason else REMEDY
        if options["address"] != "local":
            remedy = "check the address and the token (RAY_AUTH_TOKEN)"
        raise RayFailed(f"{what} ({reason[:300].rstrip('.')}); {remedy}") from problem


def short_folder(places: Sequence[str]) -> str:
    """A new folder in the first of the places that can be written and leaves room for the names of Ray's sockets.

    Raises RayFailed if there is none.
    """
    for place in places:
        with suppress(OSError):
            folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=place)
            if len(folder) <= LONGEST_FOLDER:
                return folder
            os.rmdir(folder)
    most = LONGEST_FOLDER - len(f"/{FOLDER_PREFIX}") - RANDOM
    what = f"Ray needs a folder whose path has at most {most} characters, and none of {', '.join(places)} can be used"
    raise RayFailed(f"{what}; set TMPDIR to a short path")


@contextmanager
def _private_environment(session: RaySession) -> Iterator[str]:
    """The variables of a Ray that only this user on this machine can reach. Yields the folder of Ray."""
    folder = short_folder([tempfile.gettempdir(), *SHORT_PLACES])
    clusters = ray_constants.ENABLE_RAY_CLUSTER
    try:
        with marked(Path(folder)), private_variables():
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
            # Ray's own way to 127.0.0.1, for its processes. Ray uses it by default on the desktops of other makers.
            os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
            ray_constants.ENABLE_RAY_CLUSTER = False
            _read_environment_again()
            try:
                yield folder
            finally:
                session.end()
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clusters
        _read_environment_again()
        shutil.rmtree(folder, ignore_errors=True)


def _read_environment_again() -> None:
    """Ray reads the variables once, and an earlier session of this process may have had others."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _inherited_environment() -> Iterator[None]:
    """Let Tune's actors use the workers that a local Ray starts with.

    Tune sets environment variables for its actors. Ray 2.60 starts further processes for them, and stops the first
    processes. On this machine the first processes inherit the variables from the driver.
    """
    asked = class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE
    class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE = {}, set[str]()
    try:
        yield
    finally:
        class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE = asked


@contextmanager
def _entrypoint_without_password() -> Iterator[None]:
    """Let Ray record the command of the driver without its passwords. Everyone on the cluster can read the record."""
    original = ray_utils.get_entrypoint_name
    ray_utils.get_entrypoint_name = lambda: redacted(original())
    try:
        yield
    finally:
        ray_utils.get_entrypoint_name = original
