"""Several hosts on one machine: network, mount, process and name spaces of their own on one bridge, all removed after.

Every host sees a folder of its own at the same path (`home`), so whatever is meant to be shared must really travel:
a path that one host writes to is another file on the next. A host's first process lives as long as we hold its
input open; when it goes, the kernel kills all that ran on the host and takes away its network, even if the tests
were killed themselves. Needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN) and iproute2.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

FIRST = """
import os, signal, sys
def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
signal.signal(signal.SIGCHLD, reap)
print(flush=True)
sys.stdin.buffer.read()
"""
"""A host's process 1: takes in orphans, and ends with its input."""
Answer = TypeVar("Answer")
SPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


class Unable(RuntimeError):
    """This machine does not let us make hosts; the tests fail, they are not skipped."""


def until(condition: Callable[[], Answer], seconds: float, what: str) -> Answer:
    """What `condition` answers once that is true; AssertionError when `seconds` are over."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
    return answer


def _do(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unable(
            f"{' '.join(command)}: {done.stderr.strip()}; hosts need root, CAP_NET_ADMIN and iproute2"
        )
    return done.stdout


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Process:
    """A process on a host, in a session of its own; `log` has all that it said."""

    def __init__(self, host: "Host", command: list[str], environment: dict[str, str], log: Path) -> None:
        enter = ["nsenter", f"--target={host.first}", *SPACES, f"--wdns={host.home}", "setsid"]
        self.log, self.said_before = log, log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self.outer = subprocess.Popen(
                [*enter, *command], env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip

    @property
    def running(self) -> bool:
        return self.outer.poll() is None

    @property
    def said(self) -> str:
        return self.log.read_bytes()[self.said_before :].decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        for pid in _children(self.outer.pid):
            os.kill(pid, number)

    def kill(self) -> None:
        """The process and those of its session, without warning."""
        for pid in _children(self.outer.pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.outer.wait(20)

    def wait(self, seconds: float) -> int:
        """Its exit code. AssertionError, with what it said, when `seconds` are over."""
        try:
            return self.outer.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} s:\n{self.said[-4000:]}") from None


@dataclass
class Host:
    """One machine: `up()` boots it, `kill()` is a power cut; its disk survives unless it is a `tiny` one."""

    network: "Network"
    name: str
    number: int
    disk: str = ""
    """The size of its disk, as `20m`; by default it has as much as this machine."""
    holder: subprocess.Popen[bytes] | None = None
    first: int = 0

    @property
    def address(self) -> str:
        return f"{self.network.prefix}.{self.number}"

    @property
    def home(self) -> Path:
        """The host's own folder, at the same path on every host; from outside see `folder`."""
        return self.network.root / "home"

    @property
    def folder(self) -> Path:
        """`home`, as the tests see it while the host is up."""
        return Path(f"/proc/{self.first}/root{self.home}") if self.disk else self.network.root / self.name

    @property
    def _link(self) -> str:
        return f"v{self.number}"

    def up(self) -> Self:
        words = [
            "unshare",
            *SPACES,
            "--fork",
            "--kill-child=KILL",
            "--mount-proc",
            "--propagation",
            "private",
        ]
        self.holder = subprocess.Popen(
            [*words, sys.executable, "-S", "-c", FIRST], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert self.holder.stdout
        if not self.holder.stdout.readline():
            raise Unable("unshare made no host; hosts need root and CAP_SYS_ADMIN")
        (self.first,) = _children(self.holder.pid)
        self._furnish()
        self._connect()
        return self

    def _furnish(self) -> None:
        own = self.network.root / self.name
        own.mkdir(exist_ok=True)
        disk = f"mount -t tmpfs -o size={self.disk},mode=755 none" if self.disk else f"mount --bind {own}"
        self._inside(
            f"{disk} {self.home} && mkdir -p {self.home}/tmp && mount --bind {self.network.names} /etc/hosts "
            f"&& mount -t tmpfs -o size=512m none /dev/shm && hostname {self.name}"
        )

    def _connect(self) -> None:
        hub, inner = self.network.hub, f"i{self.number}"
        hub._inside(f"ip link add {self._link} type veth peer name {inner} netns {self.first}")
        hub._inside(f"ip link set {self._link} master br0 up")
        self._inside(
            f"ip link set lo up && ip link set {inner} name eth0 && ip addr add {self.address}/24 dev eth0 "
            # Its own for good, as a network card's: a host that came back with another would not be found at first.
            f"&& ip link set eth0 address 02:00:00:00:00:{self.number:02x} "
            "&& ip link set eth0 up"
        )

    def _inside(self, script: str) -> str:
        spaces = [each for each in SPACES if each != "--pid"]
        return _do("nsenter", f"--target={self.first}", *spaces, "sh", "-c", script)

    def start(self, name: str, *command: str, **environment: str) -> Process:
        """Run a command here; its log is kept under `name` for all its lives."""
        log = self.network.root / "logs" / f"{self.name}-{name}.log"
        process = Process(self, list(command), self.network.environment(self) | environment, log)
        self.network.processes.append(process)
        return process

    def pids(self) -> list[int]:
        """All that runs here, in the numbers of this machine."""
        mine, found = os.readlink(f"/proc/{self.first}/ns/pid"), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and os.readlink(entry / "ns/pid") == mine:
                    found.append(int(entry.name))
        return found

    def trainers(self) -> list[int]:
        """The processes that train, as Ray titles them; of those that are only starting, nothing would be lost."""
        return [pid for pid in self.pids() if "ImplicitFunc.train" in _title(pid)]

    def cut(self) -> None:
        """Nothing comes or goes any more; no connection is told."""
        self.network.hub._inside(f"ip link set {self._link} down")

    def mend(self) -> None:
        self.network.hub._inside(f"ip link set {self._link} up")

    def slow(self, rate: str) -> None:
        """All that the host is sent comes through at `rate`, as `1mbit`."""
        self.network.hub._inside(
            f"tc qdisc replace dev {self._link} root tbf rate {rate} burst 16kb latency 2s"
        )

    def fast(self) -> None:
        self.network.hub._inside(f"tc qdisc del dev {self._link} root")

    def kill(self) -> None:
        """A power cut: everything dies, and nobody is told."""
        self.cut()
        self.stop()

    def stop(self) -> None:
        if self.holder:
            os.killpg(self.holder.pid, signal.SIGKILL)
            self.holder.wait(20)
            assert self.holder.stdin
            assert self.holder.stdout
            self.holder.stdin.close()
            self.holder.stdout.close()
            self.holder = None
            until(lambda: not os.path.exists(f"/proc/{self.first}"), 20, f"host {self.name} is gone")
            if self.network.hub is not self:
                # Not by itself at once: a connection that still waits for its other end keeps the space alive.
                self.network.hub._inside(f"ip link del {self._link} 2>/dev/null || true")


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


class Network:
    """A bridge with hosts on it, in a subnet that nobody here uses; a context, which leaves nothing behind.

    The bridge lies in a space of its own, so that the one name on this machine is that of the link to it.
    """

    def __init__(self, **environment: str) -> None:
        self.more = environment
        self.hosts: dict[str, Host] = {}
        self.processes: list[Process] = []

    def __enter__(self) -> Self:
        # Short, for a Unix socket's path has at most 107 characters, and Ray's take 70 of them.
        self.root = Path(tempfile.mkdtemp(prefix="ls"))
        self.root.chmod(0o755)
        for name in ("home", "shared", "logs", "traces"):
            (self.root / name).mkdir()
        self.names = self.root / "names"
        self.prefix = _free_prefix()
        self.hub = Host(self, "hub", 1)
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _build(self) -> None:
        self.names.write_text("127.0.0.1 localhost\n")
        words = ["unshare", *SPACES, "--fork", "--kill-child=KILL"]
        self.hub.holder = subprocess.Popen(
            [*words, sys.executable, "-S", "-c", FIRST], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert self.hub.holder.stdout
        if not self.hub.holder.stdout.readline():
            raise Unable("unshare made no namespaces; hosts need root, CAP_SYS_ADMIN and CAP_NET_ADMIN")
        (self.hub.first,) = _children(self.hub.holder.pid)
        here = f"ls{os.getpid()}"
        self.hub._inside("ip link set lo up && ip link add br0 type bridge && ip link set br0 up")
        _do("ip", "link", "add", here, "type", "veth", "peer", "name", "out", "netns", str(self.hub.first))
        self.hub._inside("ip link set out master br0 up")
        _do("ip", "addr", "add", f"{self.prefix}.1/24", "dev", here)
        _do("ip", "link", "set", here, "up")

    def __exit__(self, *exc: object) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.root, ignore_errors=True)
            stack.callback(self.hub.stop)
            for process in self.processes:  # they end with their hosts, which are stopped first
                stack.callback(process.outer.wait, 20)
            for host in self.hosts.values():
                stack.callback(host.stop)

    def host(self, name: str, disk: str = "") -> Host:
        """A new host, up."""
        number = 10 + len(self.hosts)
        host = self.hosts[name] = Host(self, name, number, disk)
        with self.names.open("a") as file:
            file.write(f"{host.address} {name}\n")
        return host.up()

    def environment(self, host: Host) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
        own = {"HOME": str(host.home), "TMPDIR": str(host.home / "tmp"), "OMP_NUM_THREADS": "1"}
        return (
            kept
            | own
            | {
                "TRACE_SAVES": str(self.root / "traces" / host.name),
                "SLOW_DISK": str(self.root / "shared" / "slow"),
            }
            | self.more
        )

    def logs(self, characters: int = 2000) -> str:
        """The end of what every process said, for a failure's report."""
        files = sorted((self.root / "logs").iterdir())
        return "\n".join(
            f"--- {file.name}\n{file.read_text(errors='replace')[-characters:]}" for file in files
        )


def _free_prefix() -> str:
    """Three bytes of a private subnet that no address or route of this machine has."""
    taken = _do("ip", "-o", "addr") + _do("ip", "route")
    for attempt in range(250):
        prefix = f"10.{200 + attempt % 50}.{(os.getpid() + attempt) % 256}"
        if f"{prefix}." not in taken:
            return prefix
    raise Unable("no subnet is free")


@contextlib.contextmanager
def slowed(host: Host, rate: str) -> Iterator[None]:
    host.slow(rate)
    try:
        yield
    finally:
        host.fast()
