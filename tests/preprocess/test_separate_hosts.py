"""Real MPI jobs over several hosts, which are sets of namespaces of this machine: needs Linux, root and iproute2."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from benchmarks.three_hosts import measure
from benchmarks.virtual_hosts import PREFIX, VirtualHostsError, remove_leftovers, virtual_hosts, why_not

ROOT = Path(__file__).resolve().parents[2]
REASON = why_not()
needs_hosts = pytest.mark.skipif(REASON is not None, reason=str(REASON))
MOST = 1.05  # bytes on the network for each byte of data: headers, start-up and messages of MPI included

SERVER = """
import socket
print(socket.create_server(("", 9000)).accept()[0].recv(9).decode())
"""
CLIENT = """
import socket, time
while True:
    try:
        socket.create_connection(("h2", 9000)).sendall(b"ahoy")
        break
    except OSError:  # it does not listen yet
        time.sleep(0.01)
"""


@needs_hosts
@pytest.mark.parametrize("preprocessors", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_sample_crosses_the_network_once_per_host(preprocessors: int) -> None:
    measured = measure(hosts=3, preprocessors=preprocessors, readers_per_host=2, images=2000, side=64)
    assert measured["nodes"] == 3  # as MPI.COMM_TYPE_SHARED tells them apart
    assert measured["right_bytes"] == measured["readers"] == 6
    assert measured["samples_made"] == measured["decoded_once"] == measured["samples"] == 2000
    elsewhere = [1 - sum(maker == host for maker in range(preprocessors)) / preprocessors for host in range(3)]
    for host, share in zip(measured["hosts"], elsewhere):
        assert share <= host["in_ratio"] + 0.01 and host["in_ratio"] <= MOST, measured
        assert host["out_ratio"] <= MOST, measured


@needs_hosts
@pytest.mark.parametrize(
    ("readers", "epochs"),
    [pytest.param(2, 1, marks=pytest.mark.slow), pytest.param(2, 3, marks=pytest.mark.slow), (1, 2)],
)
def test_what_is_kept_is_read_once_on_all_hosts_together(readers: int, epochs: int) -> None:
    """Each of three hosts keeps a third of the pictures, and makes its part of every slot."""
    measured = measure(
        hosts=3, preprocessors=3, readers_per_host=readers, images=1500, side=64, epochs=epochs, kept=True
    )
    assert measured["right_bytes"] == measured["readers"] == 3 * readers
    assert measured["decoded_once"] == measured["pictures"] == 1500
    for host in measured["hosts"]:
        assert host["in_ratio"] <= MOST and host["out_ratio"] <= MOST, measured


@needs_hosts
def test_hosts_are_apart_and_reach_each_other() -> None:
    with virtual_hosts(2, shared_memory_mib=16) as cluster:

        def said(host: str, command: str) -> str:
            done = subprocess.run([*cluster.on(host), "sh", "-c", command], capture_output=True, text=True, check=True)
            return done.stdout.strip()

        assert [said(host, "hostname; pwd") for host in ("h1", "h2")] == [f"h1\n{os.getcwd()}", f"h2\n{os.getcwd()}"]
        said("h1", "touch /dev/shm/mine")
        assert said("h1", "ls /dev/shm") == "mine" and said("h2", "ls /dev/shm") == ""
        assert not Path("/dev/shm/mine").exists()
        assert said("h2", "stat -f -c %S*%b /dev/shm | sed 's/^/echo $((/; s/$/))/' | sh") == str(16 * 2**20)
        assert len(said("h1", "ls /proc | grep -c '^[0-9]'")) == 1  # a handful of processes, not the machine's
        before = cluster.traffic()
        listening = subprocess.Popen(
            [*cluster.on("h2"), sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
        )
        subprocess.run([*cluster.on("h1"), sys.executable, "-c", CLIENT], check=True, timeout=30)
        assert listening.communicate(timeout=30)[0] == "ahoy\n"
        crossed = {name: bytes_ - before[name] for name, bytes_ in cluster.traffic().items()}
        assert crossed["h1"].sent >= 4 and crossed["h2"].received >= 4
        processes = [host.process for host in cluster.hosts]
    assert not any(map(psutil.pid_exists, processes)) and not cluster.folder.exists()


@needs_hosts
def test_hosts_go_when_a_use_fails() -> None:
    with pytest.raises(ZeroDivisionError), virtual_hosts(1) as cluster:
        process, folder = cluster.hosts[0].process, cluster.folder
        raise ZeroDivisionError
    assert not psutil.pid_exists(process) and not folder.exists()


@needs_hosts
def test_hosts_of_a_killed_use_go_with_it() -> None:
    """The kernel takes the hosts; their folder goes with the next use."""
    program = "from benchmarks.virtual_hosts import *\nwith virtual_hosts(2) as cluster:\n"
    program += " print(*(host.process for host in cluster.hosts), flush=True); input()"
    owner = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    held = [psutil.Process(int(process)) for process in owner.stdout.readline().split()]
    assert len(held) == 2
    folders = list(Path(tempfile.gettempdir()).glob(f"{PREFIX}{owner.pid}-*"))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    _, alive = psutil.wait_procs(held, timeout=20)
    assert not alive
    assert len(folders) == 1 and folders[0].exists()
    remove_leftovers()
    assert not folders[0].exists()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_not() == "virtual hosts need root"
    with pytest.raises(VirtualHostsError, match="need root"), virtual_hosts(2):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root is told that first")
def test_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "ip" else found(tool))
    assert why_not() == "virtual hosts need ip (apt-get install iproute2)"
