"""Joules of hosts belong to the jobs that held their devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fleet.coordination.live_executor import NETWORKS_A_SECOND, PACE_SECONDS, WRITE_SECONDS, EnergyShares
from fleet.coordination.protocol import EnergyRead
from fleet.journal.events import Energy, Event, Warned
from fleet.journal.state import EnergyTotals


class Host:
    """Time, questions and lines of a run whose ranks 0 and 5 read counters."""

    def __init__(self) -> None:
        self.now, self.asked, self.events = 0.0, list[list[int]](), list[Event]()
        self.shares = EnergyShares((0, 5), self._ask, self.record, lambda: self.now)

    def _ask(self, ranks: Iterable[int]) -> None:
        self.asked.append(list(ranks))

    def record(self, event: Event) -> None:
        """Take an event of the journal."""
        self.events.append(event)

    def read(self, rank: int, seconds: float, *joules: tuple[tuple[int, ...], float], **keys: Any) -> None:
        devices, values = tuple(each for each, _ in joules), tuple(each for _, each in joules)
        told = {"sources": ("rapl",), **keys}
        self.shares.on_energy_read(EnergyRead(rank, f"n{rank}", seconds, devices, values, **told))

    def totals(self) -> EnergyTotals:
        self.shares.write()
        totals = EnergyTotals()
        for event in self.events:
            if isinstance(event, Energy):
                totals = totals.plus(event)
        return totals


def test_a_job_gets_the_part_of_the_devices_time_that_it_held() -> None:
    host = Host()
    host.shares.began("a", (0,))
    host.now = 4.0
    host.shares.ended("a", (0,))
    host.shares.began("b", (0, 1))
    host.now = 10.0
    host.read(0, 10.0, ((0, 1), 2000.0))
    totals = host.totals()
    assert totals.jobs == {"a": pytest.approx(400), "b": pytest.approx(1200)} and totals.idle == pytest.approx(400)
    host.now = 12.0
    host.read(0, 2.0, ((0, 1), 100.0))
    totals = host.totals()
    assert totals.jobs == {"a": pytest.approx(400), "b": pytest.approx(1300)} and totals.idle == pytest.approx(400)


def test_each_accelerators_counter_goes_to_its_own_jobs() -> None:
    host = Host()
    host.shares.began("a", (0,))
    host.shares.began("b", (1, 2))
    host.now = 5.0
    host.read(0, 5.0, ((0,), 50.0), ((1,), 70.0), ((0, 1), 10.0), sources=("nvml", "rapl"))
    host.read(5, 5.0, ((2,), 30.0), sources=("hwmon",))
    totals = host.totals()
    assert totals.jobs == {"a": pytest.approx(55), "b": pytest.approx(105)} and totals.idle == pytest.approx(0)
    assert totals.sources == {"nvml", "rapl", "hwmon"}
    assert totals.used + totals.idle == pytest.approx(160)


def test_nothing_is_lost_where_clocks_differ() -> None:
    host = Host()
    host.shares.began("a", (0,))
    host.now = 5.0
    host.read(0, 4.9, ((0,), 50.0))
    totals = host.totals()
    assert totals.jobs == {"a": pytest.approx(50)} and totals.idle == pytest.approx(0)


def test_energy_of_a_host_without_devices_is_nobodys() -> None:
    host = Host()
    host.shares.began("a", (0,))
    host.read(5, 3.0, ((), 30.0))
    assert host.totals().jobs == {} and host.totals().idle == pytest.approx(30)


def test_hosts_are_asked_at_a_pace_and_not_again_before_they_have_answered() -> None:
    host = Host()
    host.shares.ask_if_due()
    host.shares.ask_if_due()
    assert host.asked == [[0, 5]]
    host.read(0, 0.1, ((0,), 1.0))
    host.now = PACE_SECONDS
    host.shares.ask_if_due()
    assert host.asked == [[0, 5], [0]] and host.shares.awaited == {0, 5}


def test_a_host_that_can_read_nothing_is_left_alone_and_nothing_is_said() -> None:
    host = Host()
    host.shares.ask()
    for rank in (0, 5):
        host.read(rank, 1.0, sources=())
    host.now = 100.0
    host.shares.ask_if_due()
    assert len(host.asked) == 1 and host.events == [] and not host.totals()


def test_a_counter_that_went_away_is_warned_of() -> None:
    host = Host()
    host.read(0, 1.0, ((0,), 1.0), gone=("rapl",))
    (warning,) = host.events
    assert isinstance(warning, Warned) and "energy of n0 by rapl cannot be read" in warning.text


def test_lines_are_written_seldom() -> None:
    host = Host()
    host.shares.began("a", (0,))
    for second in range(1, 31):
        host.now = float(second)
        host.read(0, 1.0, ((0,), 1.0))
    assert 1 <= len(host.events) <= 30 / WRITE_SECONDS
    assert host.totals().jobs == {"a": pytest.approx(30)}


def test_lines_of_many_networks_are_written_less_often() -> None:
    host, many = Host(), int(3 * WRITE_SECONDS * NETWORKS_A_SECOND)
    for device in range(many):
        host.shares.began(f"n{device}", (device,))
    for second in range(1, 31):
        host.now = float(second)
        host.read(0, 1.0, (tuple(range(many)), 1.0))
    (told,) = host.events
    assert isinstance(told, Energy) and len(told.jobs) == many
