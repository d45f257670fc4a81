"""Jobs that share samples pace each other: by hand, against a fine-grained simulation, and as properties."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import Plan, Policy, State
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.simulated_lanes import LaneJob, Lanes, SimulatedLane
from fleet.simulator.simulation import Simulation, SimulationConfig
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy

readers = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(LaneJob, st.floats(1, 50), st.floats(1, 1000), st.just(0.0)), min_size=1
)
spread = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(LaneJob, st.floats(1, 50), st.floats(1, 1000), st.floats(0, 100)), min_size=1
)
slacks = st.sampled_from([0.0, 1.0, 30.0, 1e6])


def ends(lane: SimulatedLane) -> dict[str, float]:
    return {job: reading.end for job, reading in lane.readings().items()}


def read_by(lane: SimulatedLane, now: float, jobs: Mapping[str, LaneJob] | None = None) -> dict[str, float]:
    """Samples that each job has read until `now`: from `lane.since` on, or all of those that `jobs` had to read."""
    later = copy.deepcopy(lane)
    later.leave([], now)
    whole = jobs or lane.readings()
    return {job: whole[job].samples - reading.samples for job, reading in later.readings().items()}


def test_in_lockstep_everybody_is_as_slow_as_the_slowest() -> None:
    lane = SimulatedLane({"slow": LaneJob(5, 100), "fast": LaneJob(50, 60)}, since=2)
    assert ends(lane) == {"slow": 22, "fast": 14}
    assert read_by(lane, 4) == {"slow": 10, "fast": 10}


def test_the_buffer_lets_a_fast_job_run_ahead_and_no_further() -> None:
    # The fast one is 20 samples ahead after 20 / (10 - 5) = 4 s, at 40; then it goes at 5.
    lane = SimulatedLane({"slow": LaneJob(5, 100), "fast": LaneJob(10, 60)}, slack=20)
    assert read_by(lane, 4) == {"slow": 20, "fast": 40} and read_by(lane, 6) == {"slow": 30, "fast": 50}
    assert ends(lane) == {"slow": 20, "fast": 8}


def test_who_is_left_goes_on_at_its_own_pace() -> None:
    lane = SimulatedLane({"slow": LaneJob(5, 100), "fast": LaneJob(10, 60), "middle": LaneJob(8, 60)}, slack=20)
    assert lane.leave(["slow"], 6) == {"slow": 70}
    # At 6 s: fast 50, middle 48, and middle is behind now, but never by 20.
    assert ends(lane) == {"fast": 7, "middle": 7.5}


def test_who_needs_later_samples_waits_for_the_others_to_come_to_them() -> None:
    lane = SimulatedLane({"behind": LaneJob(10, 100), "ahead": LaneJob(20, 60, ahead=40)})
    assert read_by(lane, 3) == {"behind": 30, "ahead": 0} and read_by(lane, 6) == {"behind": 60, "ahead": 20}
    assert ends(lane) == {"behind": 10, "ahead": 10}
    assert lane.leave(["behind"], 3) == {"behind": 70} and ends(lane) == {"ahead": 6}


def test_a_job_alone_needs_no_lane() -> None:
    lanes = Lanes()
    lanes.start({"a": LaneJob(10, 50)}, 0)
    assert lanes.leave(["a"], 1) == ({}, {})
    lanes.start({"a": LaneJob(10, 50), "b": LaneJob(5, 50)}, 0)
    gone, staying = lanes.leave(["b"], 4)
    assert gone == {"b": 30} and staying["a"].end == 4 + 3
    assert lanes.leave(["a"], 5) == ({}, {}), "the last one has left the lane, too"


@given(readers, slacks)
def test_nobody_is_ahead_by_more_than_the_slack_or_faster_than_alone(jobs: dict[str, LaneJob], slack: float) -> None:
    lane = SimulatedLane(jobs, slack=slack)
    before = dict.fromkeys(jobs, 0.0)
    for now in np.linspace(0, 40, 23)[1:].tolist():
        read = read_by(lane, now)
        assert max(read.values()) - min(read.values()) <= slack + 1e-6
        for job, reader in jobs.items():
            assert before[job] - 1e-9 <= read[job] <= reader.rate * now + 1e-6
        before = read


@given(readers, slacks)
def test_a_job_has_read_all_at_its_end(jobs: dict[str, LaneJob], slack: float) -> None:
    lane = SimulatedLane(jobs, slack=slack)
    readings = lane.readings()
    assert readings.keys() == jobs.keys()
    for job, reading in readings.items():
        assert reading.samples == jobs[job].samples
        assert read_by(lane, reading.end)[job] == pytest.approx(jobs[job].samples)
        if slack == 1e6:
            assert reading.end == pytest.approx(jobs[job].samples / jobs[job].rate)


@settings(max_examples=40)
@given(
    spread, st.sampled_from([3.0, 30.0]), st.lists(st.tuples(st.floats(0, 20), st.sampled_from("abcdef")), max_size=4)
)
def test_the_same_as_in_small_steps(jobs: dict[str, LaneJob], slack: float, leaving: list[tuple[float, str]]) -> None:
    lane, step = SimulatedLane(jobs, slack=slack), 0.01
    position, there = {job: reader.ahead for job, reader in jobs.items()}, dict(jobs)
    events = sorted((round(at / step), job) for at, job in leaving)
    for tick in range(2001):
        for at, job in events:
            if at == tick and job in there:
                left = lane.leave([job], tick * step)
                still = jobs[job].ahead + jobs[job].samples - position[job]
                assert left[job] == pytest.approx(still, abs=1.0 + slack / 10) or (left[job] == 0.0 and still <= 2)
                del there[job], position[job]
        if not there:
            return
        if tick % 200 == 0:
            read = {job: there[job].ahead + count for job, count in read_by(lane, tick * step, jobs).items()}
            assert read == pytest.approx(position, abs=1.5 + slack / 10)
        last = min(position[job] + there[job].rate * step for job in there)
        position = {job: min(position[job] + there[job].rate * step, max(last + slack, position[job])) for job in there}


class Twins(Policy):
    """Starts everybody at once on a device each, on the lanes that it is told."""

    shares_streams = True

    def __init__(self, lanes: dict[str, int]) -> None:
        self.lanes = lanes

    def plan(self, state: State) -> Plan:
        new = {job.name: (index,) for index, job in enumerate(state.waiting)}
        return Plan(new, others_go_on=True, lanes={job: self.lanes[job] for job in new})


def simulated(lanes: dict[str, int], slack: float = 0.0, costs: Costs | None = None, stream: str = "s") -> list[float]:
    """Ends of jobs of 10, 20 and 60 device-seconds that are a, b and c."""
    jobs = [TraceJob(name, 0, 1, duration=work, stream=stream) for name, work in (("a", 10), ("b", 20), ("c", 60))]
    machine = MeasuredMachine(Cluster((4,)), None, costs)
    outcome = Simulation(
        Trace.of(JobColumns.from_jobs(jobs)), Uneven(machine), Twins(lanes), config=SimulationConfig(slack=slack)
    ).run()
    ends_: list[float] = outcome.end.tolist()
    return ends_


class Uneven:
    """A machine on which c is twice as fast as the others."""

    def __init__(self, machine: MeasuredMachine) -> None:
        self._machine = machine
        self.cluster, self.arriving, self.delay = machine.cluster, machine.arriving, machine.delay

    def pace(self, job: object, devices: tuple[int, ...]) -> float:
        return self._machine.pace(job, devices) * (2 if job.name == "c" else 1)  # type: ignore[attr-defined, arg-type]


def test_a_simulated_stream_is_as_slow_as_its_slowest() -> None:
    # Together c goes at 1 until b is done at 20 s, has 40 left, and needs 20 s more.
    assert simulated({"a": 0, "b": 0, "c": 0}) == [10, 20, 40]
    assert simulated({"a": 0, "b": 0, "c": 1}) == [10, 20, 30]
    assert simulated({"a": 0, "b": 0, "c": 0}, stream="") == [10, 20, 30]


def test_a_simulated_buffer_lets_a_job_run_ahead() -> None:
    # Five samples ahead at 5 s; at 20 s c has read 25, and 35 are left.
    assert simulated({"a": 0, "b": 0, "c": 0}, slack=5) == pytest.approx([10, 20, 37.5])


def test_a_lane_begins_when_all_are_ready() -> None:
    assert simulated({"a": 0, "b": 0, "c": 0}, costs=Costs(start=3)) == [13, 23, 43]


@pytest.mark.parametrize("name", ["flotilla", "local", "homogeneous", "sharing"])
@given(data=st.data())
@settings(max_examples=25)
def test_sharing_costs_time_and_never_work(name: str, data: st.DataObject) -> None:
    works = data.draw(st.lists(st.floats(1, 50), min_size=1, max_size=8))
    slack = data.draw(slacks)
    jobs = [
        TraceJob(f"job-{i}", 0, 1, duration=work, limit=4, stream=data.draw(st.sampled_from("st")))
        for i, work in enumerate(works)
    ]
    cluster = Cluster((4,) * data.draw(st.integers(1, 3)))
    outcome = Simulation(
        Trace.of(JobColumns.from_jobs(jobs)),
        MeasuredMachine(cluster, None),
        policy(name),
        config=SimulationConfig(slack=slack),
    ).run()
    assert outcome.finished.all()
    assert (outcome.service >= np.array(works) * (1 - 1e-6)).all(), "rates are linear: nobody needs less than alone"
    assert outcome.makespan * cluster.size >= sum(works) * (1 - 1e-6)
