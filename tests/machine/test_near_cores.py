"""Which cores are near a device, and who gets them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.machine.devices import cores_near, near_first
from tests.commands.support import swapping
from tests.live.support.processes import MPIEXEC, run

# Frontier: which eight cores are near GPU 0, 1, ...
FRONTIER = [tuple(range(first, first + 8)) for first in (48, 56, 16, 24, 0, 8, 32, 40)]
LOW, HIGH = (0, 1, 2, 3), (4, 5, 6, 7)
EXCHANGES = {
    "one node": (((), ()), [0, 0], True),
    "two nodes": (((), ()), [0, 1], False),
    "cores that the system refuses": (((4000,), (4001,)), [0, 0], False),
}
"""By name: cores that a rank has besides one of this machine, the ranks' nodes, whether they exchange their cores."""
IN_A_GROUP = {"run": False, "train": True}


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ({"pci_bus_id": 0xC1, "pci_device_id": 0, "pci_domain_id": 0}, "0000:c1:00.0"),
        ({"pci_bus_id": 1, "pci_device_id": 2, "pci_domain_id": 0x10001}, "10001:01:02.0"),
        ({"pci_bus_id": "0000:C1:00.0"}, "0000:c1:00.0"),
    ],
)
def test_a_device_is_found_by_its_address(told: dict[str, Any], address: str, tmp_path: Path) -> None:
    assert cores_near(SimpleNamespace(**told), tmp_path) == ()
    (tmp_path / address).mkdir()
    (tmp_path / address / "local_cpulist").write_text("0-2,8,10-11\n")
    assert cores_near(SimpleNamespace(**told), tmp_path) == (0, 1, 2, 8, 10, 11)
    (tmp_path / address / "local_cpulist").write_text("")
    assert cores_near(SimpleNamespace(**told), tmp_path) == ()


def test_a_device_without_an_address_is_near_no_core(tmp_path: Path) -> None:
    (tmp_path / "local_cpulist").write_text("0\n")
    assert cores_near(SimpleNamespace(name="?"), tmp_path / "devices") == ()


def test_the_cores_of_this_machine_s_own_devices_are_its_own() -> None:
    devices = Path("/sys/bus/pci/devices")
    found = [cores_near(SimpleNamespace(pci_bus_id=each.name)) for each in devices.glob("*")]
    assert all(max(cores, default=0) < (os.cpu_count() or 1) for cores in found)


def test_ranks_with_cores_of_their_own_exchange_them() -> None:
    """Eight trainers whose launcher counted cores up, as Slurm does, and one that makes samples."""
    cores = [tuple(range(place * 7, place * 7 + 7)) for place in range(9)]
    given = near_first(cores, [(), *FRONTIER], [0] * 9)
    assert sorted(given) == sorted(cores)
    before, after = ([len(set(own) & set(near)) for own, near in zip(each[1:], FRONTIER)] for each in (cores, given))
    assert sum(before) <= 8 and sum(after) >= 32 and min(after) >= 3


def test_cores_that_are_near_already_stay() -> None:
    cores = [(0, 1), LOW[2:], HIGH[:2], HIGH[2:]]
    assert near_first(cores, [(), LOW, HIGH, HIGH], [0] * 4) == cores


def test_cores_are_exchanged_within_a_node_and_as_many_for_as_many() -> None:
    assert near_first([(0, 1), (4, 5)], [(4, 5), ()], [0, 1]) == [(0, 1), (4, 5)]
    assert near_first([(0, 1), (4, 5, 6)], [(4, 5, 6), ()], [0, 0]) == [(0, 1), (4, 5, 6)]


def test_ranks_that_share_all_cores_keep_the_near_ones() -> None:
    every = LOW + HIGH
    assert near_first([every] * 3, [(), HIGH, LOW], [0] * 3) == [every, HIGH, LOW]


@pytest.mark.parametrize("near", [(), (9,), (0, 1)])
def test_too_few_near_cores_are_no_reason_to_leave_the_others(near: tuple[int, ...]) -> None:
    every = LOW + HIGH
    assert near_first([every] * 3, [(), near, ()], [0] * 3) == [every] * 3


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, tuple[bool, list[int]]]]:
    """Of each case: by rank, whether it says that cores were exchanged, and its own."""
    own = sorted(os.sched_getaffinity(0))[:2]
    cases = [
        (f"{what} in a {kind}", [(core, *more) for core, more in zip(own, missing)], nodes, in_a_group)
        for what, (missing, nodes, _) in EXCHANGES.items()
        for kind, in_a_group in IN_A_GROUP.items()
    ]
    program = [sys.executable, swapping.__file__, json.dumps(cases)]
    ended = run([*MPIEXEC, "-n", "2", *program], tmp_path_factory.mktemp("swapping"))
    assert ended.code == 0, ended.output
    found: dict[str, dict[int, tuple[bool, list[int]]]] = {}
    for line in ended.output.splitlines():
        name, rank, exchanged, cores = json.loads(line)
        found.setdefault(name, {})[rank] = (exchanged, cores)
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
@pytest.mark.parametrize("kind", IN_A_GROUP)
@pytest.mark.parametrize("what", EXCHANGES)
def test_ranks_exchange_their_cores(
    what: str, kind: str, settled: dict[str, dict[int, tuple[bool, list[int]]]]
) -> None:
    own, exchanged = sorted(os.sched_getaffinity(0))[:2], EXCHANGES[what][2]
    cores = own[::-1] if exchanged else own
    assert settled[f"{what} in a {kind}"] == {rank: (exchanged, [core]) for rank, core in enumerate(cores)}
