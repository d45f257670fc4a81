"""Several hosts on one machine, for what must be seen or counted between hosts. Linux, root, iproute2.

    with virtual_hosts(3) as cluster:
        before = cluster.traffic()
        subprocess.run([*cluster.mpiexec(2), sys.executable, "-m", "mpi4py", "job.py"], env=..., check=True)
        after = cluster.traffic()

A host is a set of namespaces: its own network, host name, IPC, process ids and mounts, with its own /proc and /dev/shm.
So MPI takes each for a node, shares memory only inside it, and sends everything else through its network interface,
whose bytes are counted. Files, processors and memory are the machine's. The hosts h1, h2 ... are joined by a bridge
that stands in a network of its own, together with the host `login`, from where mpiexec starts ranks: nothing is added
to the machine's network, whose addresses cannot clash with these.

Each host lives as long as its first process, which waits for the end of its input, a pipe from the process that made
the hosts. When that one ends, be it killed, the pipe is closed, the first process ends, and the kernel takes the rest:
every process of the host, its mounts, and its network.
"""

from __future__ import annotations

import os
import platform
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["VirtualCluster", "VirtualHost", "VirtualHostsError", "virtual_hosts", "why_not"]

NETWORK = "10.213.0"  # of the bridge; private (RFC 1918)
MOST_HOSTS = 200
LOGIN = "login"
PREFIX = "fleet-hosts-"
PATIENCE = 20.0  # seconds that a host may take to come up, or to go
TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}

#: Run a command inside a host, in the directory where one is: enter HOST COMMAND [ARGUMENT ...]
ENTER = """#!/bin/sh
host=$1; shift
exec nsenter $(cat "$(dirname "$0")/$host") -- /bin/sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"""

#: What mpiexec calls where it would call ssh: agent HOST WORDS..., which together are text for a shell. Its daemons
#: name a folder after their process ids, which are alike on all hosts, as /tmp is: two would take each other's away.
AGENT = """#!/bin/sh
host=$1; shift
exec "$(dirname "$0")/enter" "$host" env TMPDIR=/dev/shm /bin/sh -c "$*"
"""

LOGIN_SET_UP = """
mount --bind "$1/hosts" /etc/hosts
echo login > /proc/sys/kernel/hostname
ip link set lo up
ip link add name bridge type bridge
ip address add "$2/24" dev bridge
ip link set bridge up
"""

HOST_SET_UP = """
mount --bind "$1/hosts" /etc/hosts
mount -t tmpfs -o "mode=1777,size=$3m" tmpfs /dev/shm
echo "$2" > /proc/sys/kernel/hostname
ip link set lo up
"""

STAY = """
echo ready
exec cat
"""


class VirtualHostsError(RuntimeError):
    """The hosts cannot be made here; the text says why."""


@dataclass(frozen=True)
class NetworkBytes:
    """What went through a host's network interface, headers and all."""

    received: int
    sent: int

    def __sub__(self, other: NetworkBytes) -> NetworkBytes:
        return NetworkBytes(self.received - other.received, self.sent - other.sent)


@dataclass(frozen=True)
class VirtualHost:
    """One host.

    Attributes:
        name: its host name.
        address: its IPv4 address.
        process: id of its first process, as the machine sees it.
    """

    name: str
    address: str
    process: int


@dataclass(frozen=True)
class VirtualCluster:
    """Hosts that reach each other, and the way to start something on them.

    Attributes:
        hosts: h1, h2 ...
        folder: holds what the launch agent needs.
    """

    hosts: tuple[VirtualHost, ...]
    folder: Path

    @property
    def agent(self) -> Path:
        """The launch agent: takes ssh's place."""
        return self.folder / "agent"

    def on(self, host: str) -> list[str]:
        """Return the words before a command that make it run on a host."""
        return [str(self.folder / "enter"), host]

    def mpiexec(self, ranks_per_host: int) -> list[str]:
        """Return the words before a program that make it run in ranks on all hosts, host by host (Open MPI)."""
        launcher = str(Path(sys.executable).with_name("mpiexec"))
        places = ",".join(f"{host.name}:{ranks_per_host}" for host in self.hosts)
        ssh = ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", str(self.agent)]
        transport = ["--mca", "osc", "^ucx", "--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp"]
        quiet = ["--oversubscribe", "--bind-to", "none"]
        count = ["-n", str(ranks_per_host * len(self.hosts))]
        return [*self.on(LOGIN), launcher, "--host", places, *ssh, *quiet, *transport, *count]

    def traffic(self) -> Mapping[str, NetworkBytes]:
        """Return what went through each host's interface since it was made."""
        return {host.name: _interface_bytes(host.process) for host in self.hosts}


def why_not() -> str | None:
    """Return why no virtual hosts can be made here and what would help, or None if they can."""
    if platform.system() != "Linux":
        return "virtual hosts need Linux"
    if os.geteuid() != 0:
        return "virtual hosts need root"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"virtual hosts need {tool} (apt-get install {package})"
    link = "ip link add name bridge type bridge && ip link add name left type veth peer name right"
    shell = ["/bin/sh", "-c", f"mount -t tmpfs tmpfs /dev/shm && {link}"]
    tried = subprocess.run(
        [*_unshare(own_processes=True), *shell], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if tried.returncode != 0:
        return f"this system lets no virtual hosts be made: {tried.stderr.strip() or 'unshare failed'}"
    return None


@contextmanager
def virtual_hosts(count: int, shared_memory_mib: int = 256) -> Iterator[VirtualCluster]:
    """Make hosts h1, h2 ... and take them away at the end, with all that runs on them.

    Args:
        count: how many.
        shared_memory_mib: size of each host's /dev/shm.

    Raises:
        VirtualHostsError: they cannot be made; see `why_not`.
    """
    if not 1 <= count <= MOST_HOSTS:
        raise VirtualHostsError(f"{count} hosts: 1 to {MOST_HOSTS} can be made")
    reason = why_not()
    if reason is not None:
        raise VirtualHostsError(reason)
    remove_leftovers()
    with ExitStack() as stack:
        folder = _make_folder(count)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        login = stack.enter_context(_login(folder))
        hosts = tuple(
            stack.enter_context(_host(folder, login, number, shared_memory_mib)) for number in range(1, count + 1)
        )
        yield VirtualCluster(hosts, folder)


def remove_leftovers() -> None:
    """Take away what processes left that made hosts and were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).split("-")
        if len(owner) == 3 and owner[0].isdecimal() and not _lives(int(owner[0]), owner[1]):
            for holder in folder.glob("*.process"):
                process, _, started = holder.read_text().partition(" ")
                if process.isdecimal() and _lives(int(process), started):
                    with suppress(ProcessLookupError):
                        os.kill(int(process), 9)
            shutil.rmtree(folder, ignore_errors=True)


def _make_folder(count: int) -> Path:
    """Make the folder of scripts and names; its own name tells whose it is."""
    own = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{own}-{_started(own)}-"))
    lines = ["127.0.0.1 localhost", f"{NETWORK}.1 {LOGIN}"]
    lines += [f"{_address(number)} h{number}" for number in range(1, count + 1)]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    for name, script in (("enter", ENTER), ("agent", AGENT)):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return folder


@contextmanager
def _login(folder: Path) -> Iterator[int]:
    """The host that mpiexec runs on, in whose network the bridge is; it sees the machine's processes."""
    with _holder(folder, LOGIN, _unshare(own_processes=False), LOGIN_SET_UP, f"{NETWORK}.1") as holder:
        (folder / LOGIN).write_text(f"--target {holder.pid} --net --uts --mount")
        yield holder.pid


@contextmanager
def _host(folder: Path, login: int, number: int, shared_memory_mib: int) -> Iterator[VirtualHost]:
    name, address = f"h{number}", _address(number)
    command = _unshare(own_processes=True)
    with _holder(folder, name, command, HOST_SET_UP, name, str(shared_memory_mib)) as holder:
        first = holder.children()[0].pid  # unshare's child is the first process inside
        _in_network(login, f"link add name {name} type veth peer name eth0 netns {first}")
        _in_network(login, f"link set {name} master bridge up")
        _in_network(first, f"address add {address}/24 dev eth0")
        _in_network(first, "link set eth0 up")
        (folder / name).write_text(f"--target {first} --net --uts --ipc --mount --pid")
        yield VirtualHost(name, address, first)


@contextmanager
def _holder(folder: Path, name: str, unshare: list[str], set_up: str, *arguments: str) -> Iterator[psutil.Process]:
    """A process that holds namespaces until its input ends."""
    script = ["/bin/sh", "-e", "-c", set_up + STAY, "sh", str(folder), *arguments]
    with open(folder / f"{name}.errors", "w+") as errors:
        process = subprocess.Popen(
            [*unshare, *script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd="/"
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            (folder / f"{name}.process").write_text(f"{process.pid} {_started(process.pid)}")
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            if not ready or process.stdout.readline() != b"ready\n":
                errors.seek(0)
                raise VirtualHostsError(f"host {name} did not come up within {PATIENCE:g} s: {errors.read().strip()}")
            yield psutil.Process(process.pid)
        finally:
            process.stdin.close()
            _await_end(process)
            process.stdout.close()


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _unshare(own_processes: bool) -> list[str]:
    command = ["unshare", "--net", "--uts", "--mount"]
    return [*command, "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"] if own_processes else command


def _in_network(process: int, arguments: str) -> None:
    """Run `ip` in the network of a process."""
    command = ["nsenter", "--target", str(process), "--net", "ip", *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise VirtualHostsError(f"`ip {arguments}` failed: {done.stderr.strip()}")


def _interface_bytes(process: int) -> NetworkBytes:
    """Read eth0's counters in the network of a process."""
    for line in Path(f"/proc/{process}/net/dev").read_text().splitlines():
        name, _, values = line.partition(":")
        if name.strip() == "eth0":
            fields = values.split()
            return NetworkBytes(received=int(fields[0]), sent=int(fields[8]))
    raise VirtualHostsError(f"process {process} has no network interface eth0")


def _address(number: int) -> str:
    return f"{NETWORK}.{10 + number}"


def _started(process: int) -> str:
    """When a process started, in clock ticks since boot; with its id, its name for good."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]


def _lives(process: int, started: str) -> bool:
    try:
        return _started(process) == started
    except OSError:
        return False
