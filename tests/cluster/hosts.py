"""Several hosts on one machine: each has its own network, mount, process and name spaces, on one bridge.

Every host sees its own folder at the same path (`home`). So two hosts never share a file by accident: shared data must
travel. A host's first process lives as long as the tests hold its input open. When this process ends, the kernel kills
all processes of the host and removes its network, even if the tests were killed. Every host has a clock of its own.
Needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN), iproute2 and gcc.
"""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
"""The first process of a host. It reaps orphans, and ends with its input."""
Answer = TypeVar("Answer")
MOVED_CLOCK = Path(__file__).with_name("moved_clock.c")
SPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


class Unable(RuntimeError):
    """This machine cannot make hosts. The tests fail; they are not skipped."""


def until(condition: Callable[[], Answer], seconds: float, what: str) -> Answer:
    """The first true answer of `condition`. AssertionError after `seconds`."""
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
    """A process on a host, in its own session. `log` has its output."""

    def __init__(self, host: "Host", command: list[str], environment: dict[str, str], log: Path) -> None:
        enter = ["nsenter", f"--target={host.first}", *SPACES, f"--wdns={host.home}", "setsid"]
        self.log, self.earlier_bytes = log, log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self.outer = subprocess.Popen(
                [*enter, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.outer.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_bytes()[self.earlier_bytes :].decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        for pid in _children(self.outer.pid):
            os.kill(pid, number)

    def kill(self) -> None:
        """Kill the process and its session, without warning."""
        for pid in _children(self.outer.pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.outer.wait(20)

    def wait(self, seconds: float) -> int:
        """The exit code. AssertionError with the output after `seconds`."""
        try:
            return self.outer.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} s:\n{self.output[-4000:]}") from None


@dataclass
class Host:
    """One machine. `up()` boots it, and `kill()` is a power cut. A disk of limited size does not survive."""

    network: "Network"
    name: str
    number: int
    disk: str = ""
    """The size of the disk, such as `20m`; by default the disk of this machine."""
    holder: subprocess.Popen[bytes] | None = None
    first: int = 0

    @property
    def address(self) -> str:
        return f"{self.network.prefix}.{self.number}"

    @property
    def home(self) -> Path:
        """The host's own folder, at the same path on every host. Tests see it as `folder`."""
        return self.network.root / "home"

    @property
    def folder(self) -> Path:
        """The path of `home` for the tests, while the host is up."""
        return Path(f"/proc/{self.first}/root{self.home}") if self.disk else self.network.root / self.name

    @property
    def clock(self) -> Path:
        """The file that holds the shift of the host's clock, for the host."""
        return self.home / "clock"

    @property
    def _link(self) -> str:
        return f"v{self.number}"

    def up(self) -> Self:
        self._boot("--mount-proc", "--propagation", "private")
        self._furnish()
        self._connect()
        return self

    def _boot(self, *options: str) -> None:
        words = [
            "unshare",
            *SPACES,
            "--fork",
            "--kill-child=KILL",
            *options,
            sys.executable,
            "-S",
            "-c",
            FIRST,
        ]
        pipe = subprocess.PIPE
        self.holder = subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True)
        assert self.holder.stdout
        if not self.holder.stdout.readline():
            raise Unable("unshare made no namespaces; hosts need root, CAP_SYS_ADMIN and CAP_NET_ADMIN")
        (self.first,) = _children(self.holder.pid)

    def _furnish(self) -> None:
        own = self.network.root / self.name
        own.mkdir(exist_ok=True)
        disk = f"mount -t tmpfs -o size={self.disk},mode=755 none" if self.disk else f"mount --bind {own}"
        self._inside(
            f"{disk} {self.home} && mkdir -p {self.home}/tmp && mount --bind {self.network.names} /etc/hosts "
            f"&& head -c 8 /dev/zero > {self.clock} "
            f"&& mount -t tmpfs -o size=512m none /dev/shm && hostname {self.name}"
        )

    def take_own_tmp(self) -> None:
        """Give the host a /tmp of its own. The shared folders, Python and this project stay where they are.

        On one machine, hosts that share /tmp could choose the same names there, of sockets or of folders.
        """
        needed = {self.network.root, Path(__file__), Path(sys.executable), Path(sys.prefix)}
        kept = {path.parts[2] for each in needed for path in (each, each.resolve()) if path.parts[1] == "tmp"}
        own = self.home / "own-tmp"
        binds = [f"mkdir -p {own}/{name} && mount --rbind /tmp/{name} {own}/{name}" for name in sorted(kept)]
        self._inside(" && ".join([f"mkdir -p -m 1777 {own}", *binds, f"mount --rbind {own} /tmp"]))

    def _connect(self) -> None:
        hub, inner = self.network.hub, f"i{self.number}"
        hub._inside(f"ip link add {self._link} type veth peer name {inner} netns {self.first}")
        hub._inside(f"ip link set {self._link} master br0 up")
        self._inside(
            f"ip link set lo up && ip link set {inner} name eth0 && ip addr add {self.address}/24 dev eth0 "
            # A fixed address, as of a network card: other hosts would not find a returning host with a new address.
            f"&& ip link set eth0 address 02:00:00:00:00:{self.number:02x} "
            "&& ip link set eth0 up"
        )

    def _inside(self, script: str) -> str:
        spaces = [each for each in SPACES if each != "--pid"]
        return _do("nsenter", f"--target={self.first}", *spaces, "sh", "-c", script)

    def start(self, name: str, *command: str, **environment: str) -> Process:
        """Run a command on the host. All runs under one `name` share a log."""
        log = self.network.root / "logs" / f"{self.name}-{name}.log"
        process = Process(self, list(command), self.network.environment(self) | environment, log)
        self.network.processes.append(process)
        return process

    def pids(self) -> list[int]:
        """All processes of the host, by their pid on this machine."""
        space, pids = os.readlink(f"/proc/{self.first}/ns/pid"), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and os.readlink(entry / "ns/pid") == space:
                    pids.append(int(entry.name))
        return pids

    def trainers(self) -> list[int]:
        """The training processes, by Ray's titles. Processes that only start are left out."""
        return [pid for pid in self.pids() if "ImplicitFunc.train" in _title(pid)]

    def cut(self) -> None:
        """Drop all traffic, without closing a connection."""
        self.network.hub._inside(f"ip link set {self._link} down")

    def mend(self) -> None:
        self.network.hub._inside(f"ip link set {self._link} up")

    def slow(self, rate: str) -> None:
        """Limit the traffic to the host to `rate`, such as `1mbit`."""
        self.network.hub._inside(
            f"tc qdisc replace dev {self._link} root tbf rate {rate} burst 16kb latency 2s"
        )

    def fast(self) -> None:
        self.network.hub._inside(f"tc qdisc del dev {self._link} root")

    def move_clock(self, seconds: int) -> None:
        """Let the clock of the host differ by `seconds` from the clock of this machine. A power cut sets it right."""
        (self.folder / self.clock.name).open("r+b").write(struct.pack("q", seconds))

    def kill(self) -> None:
        """A power cut: all processes die, and no other host is told."""
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
                # The kernel may keep the space for a while, because a connection waits for its other end.
                self.network.hub._inside(f"ip link del {self._link} 2>/dev/null || true")


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


class Network:
    """A bridge with hosts, in a subnet that this machine does not use. The context removes everything at its end.

    The bridge lies in its own space, so that this machine gets only one new name, of the link to the bridge.
    """

    def __init__(self, **environment: str) -> None:
        self.more = environment
        self.hosts: dict[str, Host] = {}
        self.processes: list[Process] = []

    def __enter__(self) -> Self:
        # A short path, because a Unix socket's path has at most 107 characters, and Ray uses 70 of them.
        self.root = Path(tempfile.mkdtemp(prefix="ls"))
        self.root.chmod(0o755)
        for name in ("home", "shared", "logs", "traces"):
            (self.root / name).mkdir()
        _do("gcc", "-O2", "-shared", "-fPIC", "-o", str(self.root / "clock.so"), str(MOVED_CLOCK))
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
        self.hub._boot()
        link = f"ls{os.getpid()}"
        self.hub._inside("ip link set lo up && ip link add br0 type bridge && ip link set br0 up")
        _do("ip", "link", "add", link, "type", "veth", "peer", "name", "out", "netns", str(self.hub.first))
        self.hub._inside("ip link set out master br0 up")
        _do("ip", "addr", "add", f"{self.prefix}.1/24", "dev", link)
        _do("ip", "link", "set", link, "up")

    def __exit__(self, *exc: object) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.root, ignore_errors=True)
            stack.callback(self.hub.stop)
            for process in self.processes:  # processes end with their hosts, which are stopped first
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
        own["TRACE_SAVES"] = str(self.root / "traces" / host.name)
        own |= {"LD_PRELOAD": str(self.root / "clock.so"), "CLOCK_SHIFT": str(host.clock)}
        own["SLOW_DISK"] = str(self.root / "shared" / "slow")
        return kept | own | self.more

    def logs(self, characters: int = 2000) -> str:
        """The end of the output of every process, for the report of a failure."""
        files = sorted((self.root / "logs").iterdir())
        return "\n".join(
            f"--- {file.name}\n{file.read_text(errors='replace')[-characters:]}" for file in files
        )


def _free_prefix() -> str:
    """The first three bytes of a private subnet that this machine does not use."""
    taken = _do("ip", "-o", "addr") + _do("ip", "route")
    for attempt in range(250):
        prefix = f"10.{200 + attempt % 50}.{(os.getpid() + attempt) % 256}"
        if f"{prefix}." not in taken:
            return prefix
    raise Unable("no subnet is free")
