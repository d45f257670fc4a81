"""Runs on one machine listen on its loopback interface alone, and torch's stores too."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest

from fleet.machine.doctor import listeners_by_node, listeners_here
from fleet.machine.launch.local_launch import Mpiexec, keep_on_loopback, listening
from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import FLEET, MPIEXEC, Running, run, started
from trainers.messages.torch_backend import joined_store, listening_store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

LISTENS = "0A"  # the state in /proc/net/tcp
LOOK_SECONDS = 0.05
SMALL = "tests.commands.support.small_tasks:Small"
SERVER = """
import select, socket
servers = [socket.create_server(("0.0.0.0", 0)), socket.create_server(("::", 0), family=socket.AF_INET6)]
print(*(server.getsockname()[1] for server in servers), flush=True)
while True:
    for server in select.select(servers, [], [])[0]:
        connection = server.accept()[0]
        connection.sendall(b"here")
        connection.close()
"""


def _open_sockets() -> dict[str, str]:
    """The addresses beyond the loopback interface on which anybody here listens, by inode."""
    found = {}
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(file).read_text().splitlines()[1:]:
            words = line.split()
            address = words[1].partition(":")[0]
            is_loopback = address.endswith("7F") or address == "0" * 24 + "01000000"
            if words[3] == LISTENS and not is_loopback:
                found[words[9]] = words[1]
    return found


def _sockets_of(running: Running) -> dict[str, str]:
    """The sockets of a run's processes, by inode, with their commands."""
    found = {}
    for process in running._processes():
        with suppress(psutil.Error, OSError):
            for entry in Path("/proc", str(process.pid), "fd").iterdir():
                found[os.readlink(entry).removeprefix("socket:[").removesuffix("]")] = " ".join(process.cmdline())
    return found


def _seen_open(command: list[str], folder: Path, **variables: str) -> list[str]:
    """Where the processes of a command listened for others, as looks that follow one another saw it."""
    seen: list[str] = []
    with started(command, folder, FLEET_WARM="", **variables) as running:
        before: dict[str, str] = {}
        while running.process.poll() is None:
            now = _open_sockets()
            lasting = now.keys() & before.keys()  # the launcher's are open for less than a millisecond
            own = _sockets_of(running) if lasting else {}
            seen += [f"{now[inode]} of {own[inode]}" for inode in lasting if inode in own]
            before = now
            time.sleep(LOOK_SECONDS)  # how often somebody else could look
        ended = running.finish()
    assert ended.code == 0, ended.output
    return sorted(set(seen))


@pytest.mark.parametrize("words", [(), ("--no-in-place",)])
def test_a_run_on_one_machine_listens_for_itself_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    ensemble = write_ensemble(tmp_path, [mlp()])
    assert _seen_open(ensemble.plain("run", "--trainers", "2", *words), tmp_path) == []


@pytest.mark.parametrize("words", [("--trainers", "2"), ("--trainers", "2", "--reduce", "torch"), ("--ddp",)])
def test_a_job_on_one_machine_listens_for_itself_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    job = ["train", SMALL, "--virtual-workers", "2", "--steps", "3", "--checkpoint", "a.h5"]
    assert _seen_open([*FLEET, *job, *words], tmp_path) == []


def test_a_launcher_s_sockets_are_moved_while_it_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        ports = [int(word) for word in server.stdout.readline().split()]
        assert [place.rpartition(":")[2] for place in listening(server.pid)] == [str(port) for port in ports]
        over = Event()
        moving = Thread(target=keep_on_loopback, args=(server.pid, over.is_set))
        moving.start()
        while listening(server.pid):
            pass
        over.set()
        moving.join()
        for host, port in zip(("127.0.0.1", "::1"), ports):  # it accepts as before, at the same port
            with socket.create_connection((host, port), timeout=60) as connection:
                assert connection.recv(4) == b"here"
        own = socket.gethostbyname_ex(socket.gethostname())[2]
        for host in (address for address in own if not address.startswith("127.")):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, ports[0]), timeout=60)
        server.kill()


def test_moving_ends_with_the_launcher() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as launcher:
        launcher.wait()
    keep_on_loopback(launcher.pid, lambda: False)


@pytest.mark.parametrize(
    ("family", "variables"),
    [("openmpi", ["PMIX_MCA_ptl_base_if_include"]), ("mpich", ["UCX_NET_DEVICES", "FI_TCP_IFACE"])],
)
def test_local_ranks_are_told_the_loopback_interface(
    family: str, variables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    assert {name: Mpiexec("mpiexec", family).environment().get(name) for name in variables} == dict.fromkeys(
        variables, "lo"
    )
    monkeypatch.setenv(variables[0], "ib0")  # of a person, who has reasons
    assert variables[0] not in Mpiexec("mpiexec", family).environment()


def test_a_store_of_one_host_listens_on_its_loopback_interface() -> None:
    before = set(listening(os.getpid()))
    store, name = listening_store(True, 60.0)
    assert name.startswith("127.0.0.1:") and set(listening(os.getpid())) == before
    joined_store(name, 60.0).set("from", "here")
    assert store.get("from") == b"here"


def test_a_store_of_several_hosts_listens_on_the_interface_of_the_host_s_name() -> None:
    before = set(listening(os.getpid()))
    _, name = listening_store(False, 60.0)
    own = socket.gethostbyname(socket.gethostname())
    port = name.rpartition(":")[2]
    expected = f"0.0.0.0:{port}" if own.startswith("127.") else f"{own}:{port}"
    assert set(listening(os.getpid())) - before == {expected}
    joined_store(name, 60.0).set("from", "here")


def test_the_store_of_torch_s_messages_is_a_file_of_this_user_alone(tmp_path: Path) -> None:
    program = "\n".join([
        "import os, stat, sys",
        "from pathlib import Path",
        "from mpi4py import MPI",
        "from fleet.commands.train_options import transport_of_world",
        "transport_of_world(MPI.COMM_WORLD, True)",
        "import torch.distributed as dist",
        "store = dist.distributed_c10d._get_default_store().underlying_store",
        "print(type(store).__name__, oct(os.stat(Path(store.path).parent).st_mode & 0o777), flush=True)",
        "MPI.COMM_WORLD.Barrier()",
        "dist.destroy_process_group()",
    ])  # fmt: skip
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    ended = run([*MPIEXEC, "-n", "2", sys.executable, "-c", program], tmp_path, TMPDIR=str(temporary))
    assert ended.code == 0 and ended.output.count("FileStore 0o700") == 2, ended.output
    assert not list(temporary.glob("fleet-*"))


def test_who_listens_for_others_is_told_by_node() -> None:
    with socket.create_server(("0.0.0.0", 0)):
        told = listeners_here()
    assert told["node"] == socket.gethostname() and "0.0.0.0" in told["places"]
    ranks = [("n1", ["0.0.0.0"], "eth0 10.0.0.1"), ("n2", [], "eth0 10.0.0.2"), ("n1", ["::"], "eth0 10.0.0.1")]
    line = "n1: ranks and launcher listen on 0.0.0.0, ::; its interfaces: eth0 10.0.0.1"
    named = [dict(zip(("node", "places", "interfaces"), rank)) for rank in ranks]
    assert listeners_by_node(named) == [line]
