"""Sia's workloads: profiles by kind, jobs that learn, free moves, and the policies that were made for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.sia_machine import (
    MeasuredSteps,
    SiaMachine,
    SiaRates,
    StepModel,
    _series,
    fitted,
    read_sia_rates,
)
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.variable_batch.kind_goodput import KindGoodput, Shapes
from fleet.simulator.comparing.settings import read_cluster
from fleet.simulator.machines.machine import Adapting, AdaptingMachine
from fleet.simulator.machines.rate_tables import read_rates
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import TraceError, read_trace
from fleet.spec.policies import policy
from tests.simulator.support.published import published
from tests.simulator.support.sia_files import write_sia_rates, write_sia_trace

SHAPE = "2x2:fast,2x2:slow"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sia")
    write_sia_rates(made)
    write_sia_trace(made, [0.0, 5.0, 61.0, 400.0])
    return made


@pytest.fixture(scope="module")
def machine(folder: Path) -> SiaMachine:
    return SiaMachine(read_cluster(SHAPE), read_sia_rates(folder / "profiles"))


class Told(Policy):
    """Gives its jobs devices at the times that it was told."""

    name = "told"
    knows_kinds = True

    def __init__(self, moves: dict[float, tuple[int, ...]]) -> None:
        self._moves = moves

    def plan(self, state: State) -> Plan:
        held = max(time for time in self._moves if time <= state.time)
        later = [time for time in self._moves if time > state.time]
        return Plan(dict.fromkeys(state.by_name, self._moves[held]), wake=min(later, default=float("inf")))


def test_the_files_are_read_as_they_lie_there(folder: Path) -> None:
    rates = read_rates(folder / "profiles")
    assert isinstance(rates, SiaRates) and rates.kinds == ("fast", "slow") and rates.models == ("net",)
    application = rates.application("net")
    assert (application.epochs, application.restart, application.penalty, application.slowdown) == (2, 20, 10, 2)
    assert application.ends.tolist() == [100, 300]
    assert application.kinds["fast"].step((2,), 4).seconds == pytest.approx(4 * 0.01 + 0.02)
    assert application.kinds["fast"].step((2, 2, 2), 8).seconds > application.kinds["fast"].step((2, 2), 8).seconds


def test_a_folder_without_validation_is_told(tmp_path: Path) -> None:
    profiles = write_sia_rates(tmp_path)
    for file in (profiles / "net").glob("validation-*"):
        file.unlink()
    with pytest.raises(TraceError, match="validation"):
        read_rates(profiles)


def test_a_kind_that_was_not_measured_is_told(folder: Path) -> None:
    rates = read_rates(folder / "profiles")
    from fleet.simulator.machines.machine import Costs

    with pytest.raises(ValueError, match="quick.*fast"):
        rates.machine(read_cluster("2x2:quick"), Costs())


def test_a_job_that_keeps_its_batch_takes_its_restart_and_its_steps(folder: Path, machine: SiaMachine) -> None:
    trace = read_trace(folder / "workload.csv")
    alone = replace(trace, jobs=trace.jobs.take(np.array([0])))
    # 16 samples on two fast devices: 8 x 0.01 + 0.02 s, twice as slow; gain 2 / 1.5, then 16 / 8.5.
    outcome = Simulation(alone, machine, Told({0.0: (0, 1)})).run()
    steps = round(100 / (2 / 1.5) * 0.2) + round(200 / (16 / 8.5) * 0.2)
    assert outcome.end.tolist() == [pytest.approx(20 + steps)]
    assert isinstance(machine, AdaptingMachine)


def test_only_moves_to_another_kind_or_shape_restart(folder: Path, machine: SiaMachine) -> None:
    trace = read_trace(folder / "workload.csv")
    alone = replace(trace, jobs=trace.jobs.take(np.array([0])))
    ends = {}
    for name, devices in (("stays", (0, 1)), ("same", (2, 3)), ("apart", (0, 2)), ("kind", (4, 5))):
        outcome = Simulation(alone, machine, Told({0.0: (0, 1), 25.0: devices})).run()
        ends[name] = float(outcome.end[0]), int(outcome.restarts[0])
    assert ends["same"] == ends["stays"] == (pytest.approx(ends["stays"][0]), 0)
    assert ends["apart"][0] > ends["stays"][0] + 19 and ends["apart"][1] == 1
    assert ends["kind"][0] > ends["apart"][0] and ends["kind"][1] == 1


def test_jobs_know_what_they_have_measured_or_all_of_it(folder: Path, machine: SiaMachine) -> None:
    job = read_trace(folder / "workload.csv").jobs[0]
    learning, known = (machine.under(Adapting(True, told)).arriving(job) for told in (False, True))
    assert isinstance(learning.scaling, KindGoodput) and isinstance(known.scaling, KindGoodput)
    shapes = ((1, 1), (1, 2))
    assert learning.scaling.tried == 0 and learning.scaling.goodputs("fast", shapes) is None
    told = known.scaling.goodputs("fast", shapes)
    assert told is not None and told[1] > told[0] > 0
    assert known.scaling.ratio("fast", "slow") == pytest.approx(3, rel=0.1)


def test_the_step_model_finds_what_made_the_steps() -> None:
    true = StepModel(0.02, 0.003, 0.05, 0.001, 0.04, 0.001, 1.2)
    grid = np.array([(n, d, b) for n, d in ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16)) for b in (4, 16, 64)], dtype=float)
    nodes, devices, local = grid.T
    seconds = true.seconds(nodes, devices, local)
    found = fitted(MeasuredSteps(nodes, devices, local, true.compute(local), seconds))
    assert found.seconds(nodes, devices, local) == pytest.approx(seconds, rel=0.15)


@pytest.mark.parametrize("name", ["sia", "gavel", "goodput"])
def test_all_jobs_are_done_under(name: str, folder: Path, machine: SiaMachine) -> None:
    outcome = Simulation(read_trace(folder / "workload.csv"), machine, policy(name)).run()
    assert outcome.finished.all()
    again = Simulation(read_trace(folder / "workload.csv"), machine, policy(name)).run()
    assert again.end.tolist() == outcome.end.tolist()


def test_goodput_is_ahead_of_sia_and_that_of_gavel(folder: Path, machine: SiaMachine) -> None:
    trace = read_trace(folder / "workload.csv")
    means = {n: Simulation(trace, machine, policy(n)).run().jct.mean() for n in ("goodput", "sia", "gavel")}
    assert means["goodput"] < means["sia"] < means["gavel"]


def test_sia_begins_with_one_device_and_doubles(folder: Path, machine: SiaMachine) -> None:
    trace = read_trace(folder / "workload.csv")
    alone = replace(trace, jobs=trace.jobs.take(np.array([0])))
    counts: list[int] = []
    Simulation(alone, machine, policy("sia"), watch=lambda _, plan, held: counts.extend(map(len, held.values()))).run()
    assert counts[0] == 1 and all(after <= 2 * before for before, after in zip(counts, counts[1:]))
    assert max(counts) > 1


@dataclass(frozen=True)
class OnFast:
    """A `KindGoodput` measured on fast devices alone, which notes what it is asked for there."""

    asked: list[Shapes]
    application: str = "net"
    tried: int = 4
    most: int = 8
    penalty: float = 10.0

    def goodputs(self, kind: str, shapes: Shapes) -> np.ndarray | None:
        if kind != "fast":
            return None
        self.asked.append(shapes)
        return np.array([float(devices) for _, devices in shapes])

    def ratio(self, kind: str, other: str) -> float:
        return 0.5


def test_sia_takes_from_another_kind_what_as_many_devices_do_on_its_nodes() -> None:
    asked: list[Shapes] = []
    job = JobState("net", RateCurve({1: 1.0}, 2), 8, scaling=OnFast(asked))  # type: ignore[arg-type]
    policy("sia").plan(State.of(read_cluster("4x2:fast,1x4:slow"), [job], {}, time=60.0))
    own, others = asked
    assert own == ((1, 1), (1, 2), (2, 4), (3, 6), (4, 8))
    assert others == ((1, 1), (1, 2), (2, 4)), "four slow devices are on one node, four fast ones on two"


def test_no_plan_is_worth_more_than_its_bound(folder: Path, machine: SiaMachine) -> None:
    plans: list[Plan] = []
    trace = read_trace(folder / "workload.csv")
    Simulation(trace, machine, policy("goodput"), watch=lambda _, plan, held: plans.append(plan)).run()
    told = [(plan.worth, plan.worth_bound) for plan in plans if plan.worth is not None and plan.worth_bound is not None]
    assert told and all(worth <= bound + 1e-9 for worth, bound in told)


def test_gavel_on_the_authors_workload() -> None:
    folder = published("traces/sia")
    trace = read_trace(folder / "workloads" / "saturn" / "workload-1.csv")
    trace = replace(trace, jobs=trace.jobs.shifted(trace.offset), offset=0.0)
    machine = SiaMachine(read_cluster("6x4:aws,2x8:dgx-ext,3x8:rtx"), read_sia_rates(folder / "profiles"))
    outcome = Simulation(trace, machine, policy("gavel")).run()
    assert outcome.jct.mean() / 3600 == pytest.approx(1.798, rel=0.07)
    assert outcome.makespan / 3600 == pytest.approx(27.385, rel=0.07)


def test_the_series_of_batches_in_single_precision_is_nearly_that_in_double() -> None:
    least = np.array([12.0, 64.0])
    single, double = _series(least.astype(np.float32), 384), _series(least, 384)
    assert single.dtype == np.float32 and (single != double).any()
    assert single == pytest.approx(double, rel=1e-6)
    assert single[0].tolist() == least.tolist() and single[-1].tolist() == [384, 384]
