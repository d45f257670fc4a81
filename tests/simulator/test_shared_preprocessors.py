"""Streams share preprocessors in a simulation, and samples of data that are kept by then take them less time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import DataPath, Feed, Lending
from fleet.simulator.machines.machine import MeasuredMachine
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulated_lanes import FedJob, SharedPreprocessors, fair_level
from fleet.simulator.simulation import Simulation, SimulationConfig
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy

lanes = st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.1, 3.0)), min_size=1, max_size=8)


def simulated(
    feeds: dict[str, Feed], streams: dict[str, str], name: str = "local", epochs: float = 2
) -> SimulationOutcome:
    """Jobs that train 10 samples in each epoch, and would train one a second alone; each has a device."""
    jobs = [
        TraceJob(job, 0, 1, duration=10 * epochs, stream=stream, epochs=epochs, limit=1)
        for job, stream in streams.items()
    ]
    trace = Trace.of(JobColumns.from_jobs(jobs)).with_feeds(feeds)
    return Simulation(trace, MeasuredMachine(Cluster((len(jobs),)), None), policy(name)).run()


@given(lanes)
def test_shares_are_fair_and_use_all_time_that_is_wanted(wanted: list[tuple[float, float]]) -> None:
    level = fair_level(wanted)
    taken = sum(min(rate, level) * seconds for rate, seconds in wanted)
    if level == math.inf:
        assert taken <= 1 + 1e-9
    else:
        assert taken == pytest.approx(1.0) and max(rate for rate, _ in wanted) > level


def test_those_that_read_together_take_as_much_as_the_slowest_of_them() -> None:
    feeds = {job: Feed("d", 10.0, 10.0) for job in "abc"}
    demands = [FedJob("a", 0, 4.0), FedJob("b", 0, 20.0), FedJob("c", 1, 9.0)]
    most = SharedPreprocessors(feeds).most(demands)
    assert most == pytest.approx({"a": math.inf, "b": math.inf, "c": 6.0})  # c has what a and b, at 4 of 10, leave


def test_trainers_that_help_make_as_much_more() -> None:
    demands = [FedJob("a", 0, 9.0), FedJob("b", 1, 9.0)]
    made = SharedPreprocessors({job: Feed("d", 10.0, 10.0) for job in "ab"})
    assert made.most(demands, 1.5) == pytest.approx({"a": 7.5, "b": 7.5})


def test_a_simulation_lends_the_trainers_that_its_jobs_leave() -> None:
    """Alone it would train one sample a second; half as much is made, and with the second trainer all that it eats."""
    job = TraceJob("a", 0, 1, duration=20, stream="a", epochs=2, limit=1)
    trace = Trace.of(JobColumns.from_jobs([job])).with_feeds({"a": Feed("d", 0.5, 0.5)})
    ends = [
        Simulation(
            trace,
            MeasuredMachine(Cluster((2,)), None),
            policy("local"),
            config=SimulationConfig(lending=Lending(1, most)),
        ).run().end.item()
        for most in (0, 1)
    ]  # fmt: skip
    assert ends == pytest.approx([40.0, 20.0])


def test_a_fold_s_samples_are_fewer_than_those_that_go_by() -> None:
    """Of ten samples/s, two lanes get five each; in a's lane every second one is its own."""
    feeds = {"a": Feed("d", 10.0, 10.0, passing=2.0), "b": Feed("d", 10.0, 10.0)}
    most = SharedPreprocessors(feeds).most([FedJob("a", 0, 9.0), FedJob("b", 1, 9.0)])
    assert most == pytest.approx({"a": 2.5, "b": 5.0})


def test_costly_samples_slow_the_lanes_of_cheap_ones() -> None:
    """They take turns: 1 s for a sample of each, of which the cheap one takes a tenth."""
    feeds = {"cheap": Feed("d", 10.0, 10.0), "costly": Feed("e", 10 / 9, 10 / 9)}
    most = SharedPreprocessors(feeds).most([FedJob("cheap", 0, 9.0), FedJob("costly", 1, 9.0)])
    assert most == pytest.approx({"cheap": 1.0, "costly": 1.0})


def test_who_reads_nothing_that_was_measured_is_never_late() -> None:
    assert SharedPreprocessors({"a": Feed("d", 1.0, 1.0)}).most([FedJob("b", 1, 1e9)]) == {"b": math.inf}


def test_a_stream_each_is_slow_until_an_epoch_was_read() -> None:
    """A sample takes 1 s for the first of two streams, 1/4 s for the other: 0.8 a second of each until all are kept."""
    new = {job: Feed("d", 1.0, 4.0) for job in "ab"}
    assert simulated(new, {"a": "s/0", "b": "s/1"}).end == pytest.approx([22.5, 22.5])
    nothing_kept = {job: Feed("d", 1.0, 1.0) for job in "ab"}
    assert simulated(nothing_kept, {"a": "s/0", "b": "s/1"}).end == pytest.approx([40, 40])


@pytest.mark.parametrize("name", ["local", "flotilla", "sharing"])
def test_one_stream_for_both_is_made_once(name: str) -> None:
    feeds = {job: Feed("d", 1.0, 1.0) for job in "ab"}
    assert simulated(feeds, {"a": "s/0", "b": "s/0"}, name).end == pytest.approx([20, 20])


def test_other_data_are_new_still() -> None:
    feeds = {"a": Feed("d", 1.0, 100.0), "b": Feed("e", 1.0, 100.0)}
    ends = simulated(feeds, {"a": "s/0", "b": "t/0"}, epochs=3).end
    assert ends == pytest.approx([40, 40])  # both data sets at a half until 20 s


def test_who_is_left_is_fed_faster() -> None:
    """Epochs of 10 samples; a has one, b three: at a half each until a is done at 20 s."""
    feeds = {job: Feed("d", 1.0, 1.0) for job in "ab"}
    jobs = [
        TraceJob(job, 0, 1, duration=10 * e, stream=f"s/{job}", epochs=e, limit=1) for job, e in (("a", 1), ("b", 3))
    ]
    trace = Trace.of(JobColumns.from_jobs(jobs)).with_feeds(feeds)
    outcome = Simulation(trace, MeasuredMachine(Cluster((2,)), None), policy("fifo")).run()
    assert outcome.end == pytest.approx([20, 40])


@given(
    st.lists(
        st.tuples(st.floats(0.2, 5), st.floats(1, 5), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=5
    )
)
def test_preprocessors_never_make_more_than_they_can(drawn: list[tuple[float, float, int, int]]) -> None:
    """Whatever is drawn, all end, no sooner than each alone, nor than all streams could be made one after the other."""
    first, gain = drawn[0][:2]
    feeds = {f"j{i}": Feed("d", first, first * gain) for i in range(len(drawn))}
    jobs = [
        TraceJob(f"j{i}", 0, 1, duration=10.0 * epochs, stream=f"s/{seed}", epochs=float(epochs), limit=1)
        for i, (_, _, epochs, seed) in enumerate(drawn)
    ]
    trace = Trace.of(JobColumns.from_jobs(jobs)).with_feeds(feeds)
    outcome = Simulation(trace, MeasuredMachine(Cluster((len(jobs),)), None), policy("local")).run()
    longest = {seed: max(e for _, _, e, s in drawn if s == seed) for *_, seed in drawn}
    assert outcome.finished.all()
    assert (outcome.end >= np.array([10.0 * epochs for _, _, epochs, _ in drawn]) * (1 - 1e-6)).all()
    assert outcome.makespan >= sum(10.0 * epochs for epochs in longest.values()) / (first * gain) * (1 - 1e-6)


def test_a_data_path_tells_what_is_made_while_nothing_is_kept() -> None:
    path = DataPath({1: 50.0}, {"d": 50.0, "e": 20.0}, {"d": 10.0})
    assert Feed("d", 10.0, 50.0, 2.0).own == 25.0
    assert path.feed_of("d", passing=2.0) == Feed("d", 10.0, 50.0, 2.0)
    assert path.feed_of("e") == Feed("e", 20.0, 20.0) and path.feed_of("f") is None
