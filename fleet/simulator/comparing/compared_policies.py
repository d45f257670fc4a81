"""Policies side by side on the same jobs, every case in a process of its own, and the tables of their outcomes."""

from __future__ import annotations

import csv
import io
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import BadPlan
from fleet.simulator.comparing.settings import Case
from fleet.simulator.comparing.workload import DrawnFailures, Workload, read_failures
from fleet.simulator.machines.machine import Costs, Machine, MeasuredMachine
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import NodeFailure, Simulation, SimulationConfig
from fleet.simulator.traces.table import TraceError
from fleet.simulator.traces.trace import Trace
from fleet.spec.policies import breaks_minimum, breaks_service_level, policy, policy_class
from preprocess.files.modules import importable

LOOK_AGAIN = 0.5
"""Seconds after which a wait for processes looks whether one of them died."""


class SimulationFailed(RuntimeError):
    """A simulation did not come to its end; the text names the policy and says why."""


@dataclass(frozen=True)
class Comparison:
    """The simulation to play: plain data, from which any process loads the same jobs.

    Attributes:
        workload: jobs and rates.
        cluster: the machine.
        cases: policies and seeds.
        costs: costs of moves.
        failures: failures of nodes: drawn, from a file, or none.
        slack: samples that a job may be ahead of those with which it shares them, under a policy that shares.
        guaranteed: priority from which a job takes devices from others at once; None: none does.

    Raises:
        ValueError: a negative slack.
    """

    workload: Workload
    cluster: Cluster
    cases: tuple[Case, ...]
    costs: Costs = field(default_factory=Costs)
    failures: DrawnFailures | Path | None = None
    slack: float = 0.0
    guaranteed: int | None = None

    def __post_init__(self) -> None:
        if not self.slack >= 0:
            raise ValueError(f"slack is {self.slack} samples; it must be 0 or more")

    def load(self, seed: int) -> tuple[Trace, Machine, tuple[NodeFailure, ...]]:
        """The workload of that seed.

        Raises:
            ValueError: a file cannot be used, or the parts do not go together.
        """
        trace, rates = self.workload.load(seed)
        with importable([Path.cwd()]):
            for case in self.cases:
                policy_class(case.policy)
        _check_minimum(trace, self.cases)
        _check_service(trace, self.cases)
        machine: Machine = (
            MeasuredMachine(self.cluster, None, self.costs, self.guaranteed)
            if rates is None
            else rates.machine(self.cluster, self.costs, self.guaranteed)
        )
        if isinstance(self.failures, DrawnFailures):
            return trace, machine, self.failures.draw(self.cluster, trace, seed)
        return trace, machine, () if self.failures is None else read_failures(self.failures, self.cluster)


def _check_minimum(trace: Trace, cases: Sequence[Case]) -> None:
    """ValueError where jobs need several devices at least, and a policy does not keep to that."""
    least = trace.jobs.minimum_devices
    asking = [name for name, count in zip(trace.jobs.name, least.tolist()) if count > 1]
    broken = {case.policy: why for case in cases if (why := breaks_minimum(case.policy)) is not None}
    if asking and broken:
        what = f"job {asking[0]} and {len(asking) - 1} more have" if len(asking) > 1 else f"job {asking[0]} has"
        mend = "leave such policies out, or take minimum_devices from the trace"
        raise ValueError(f"{what} minimum_devices, but {'; '.join(broken.values())}; {mend}")


def _check_service(trace: Trace, cases: Sequence[Case]) -> None:
    """ValueError where jobs are promised a service level, and a policy holds none."""
    asking = [name for name, count in zip(trace.jobs.name, trace.jobs.service_devices.tolist()) if count == count]
    broken = {case.policy: why for case in cases if (why := breaks_service_level(case.policy)) is not None}
    if asking and broken:
        mend = "leave such policies out, or take service_devices and service_window from the trace"
        raise ValueError(f"job {asking[0]} is promised a service level, but {'; '.join(broken.values())}; {mend}")


def play_case(comparison: Comparison, case: Case, ticked: Callable[[], object] | None = None) -> SimulationOutcome:
    """Play one case.

    Raises:
        ValueError: bad input.
        SimulationFailed: the policy gave what cannot be given.
    """
    trace, machine, failures = comparison.load(case.seed)
    chosen = policy(case.policy, **case.parameters)
    try:
        return Simulation(trace, machine, chosen, failures, SimulationConfig(case.seed, comparison.slack), ticked).run()
    except BadPlan as error:
        raise SimulationFailed(f"{case.label}, seed {case.seed}: {error}") from error


def compare(
    comparison: Comparison,
    processes: int = 1,
    progress: Callable[[int], object] = lambda jobs: None,
    check: Callable[[], None] = lambda: None,
) -> list[SimulationOutcome]:
    """Play all cases, up to `processes` at once; the outcomes stand in the order of the cases.

    Args:
        progress: told how many more jobs have been played.
        check: called again and again; what it raises ends the simulations.

    Raises:
        ValueError: bad input.
        SimulationFailed: a policy gave what cannot be given, or a process died.
    """
    if min(processes, len(comparison.cases)) <= 1:

        def ticked() -> None:
            progress(1)
            check()

        return [play_case(comparison, case, ticked) for case in comparison.cases]
    with _workers(min(processes, len(comparison.cases))) as pool:
        futures = [pool.submit(_played, comparison, case) for case in comparison.cases]
        for outcome in _finished(futures, comparison.cases, check):
            progress(len(outcome.names))
        return [future.result() for future in futures]


def _prepare() -> None:
    """In a process of the pool: ctrl-C is for the first process, and none outlives it, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _played(comparison: Comparison, case: Case) -> SimulationOutcome:
    """As `play_case`; its errors can go from process to process."""
    try:
        return play_case(comparison, case)
    except TraceError as error:
        raise ValueError(str(error)) from None


def _finished(
    futures: Sequence[Future[SimulationOutcome]], cases: Sequence[Case], check: Callable[[], None]
) -> Iterator[SimulationOutcome]:
    """The outcomes as they come."""
    waiting = set(futures)
    while waiting:
        check()
        done, waiting = wait(waiting, timeout=LOOK_AGAIN, return_when=FIRST_COMPLETED)
        for future in done:
            try:
                yield future.result()
            except BrokenProcessPool as error:
                raise SimulationFailed(_broken(futures, cases)) from error


def _broken(futures: Sequence[Future[SimulationOutcome]], cases: Sequence[Case]) -> str:
    """All futures of a pool of which a process died have its end as their own."""
    lost = [case for future, case in zip(futures, cases) if not future.done() or future.exception() is not None]
    names = ", ".join(f"{case.label} (seed {case.seed})" for case in lost[:10])
    return f"a process that simulated was killed, perhaps for want of memory; try --processes 1; not done: {names}"


@contextmanager
def _workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes, which end with the block however it ends, and with this process."""
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_prepare)
    before = set(active_children())
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(active_children()) - before:
            child.terminate()
        raise
    pool.shutdown()


JOB_COLUMNS = (
    "policy",
    "seed",
    "job",
    "arrival",
    "begin",
    "end",
    "jct",
    "deadline",
    "in_time",
    "admitted",
    "dropped",
    "restarts",
    "gpu_seconds",
    "fairness",
)
LINE_END = "\r\n"  # RFC 4180
ROWS_AT_ONCE = 20_000


def job_lines(cases: Sequence[Case], outcomes: Sequence[SimulationOutcome]) -> Iterator[str]:
    """The text, some thousand lines at a time. Seconds since the first arrival; empty where it never came to that."""
    yield ",".join(JOB_COLUMNS) + LINE_END
    for case, outcome in zip(cases, outcomes, strict=True):
        for start in range(0, len(outcome.names), ROWS_AT_ONCE):
            part = io.StringIO()
            rows = _rows(case, outcome, slice(start, start + ROWS_AT_ONCE))
            csv.writer(part, lineterminator=LINE_END).writerows(rows)
            yield part.getvalue()


def _rows(case: Case, outcome: SimulationOutcome, part: slice) -> Iterator[tuple[Any, ...]]:
    having = np.isfinite(outcome.deadline[part])
    in_time = ["" if not has else _yes(met) for has, met in zip(having, outcome.in_time[part])]
    names = outcome.names[part]
    return zip(
        [case.label] * len(names),
        [case.seed] * len(names),
        names,
        *(_cells(values[part]) for values in (outcome.arrival, outcome.begin, outcome.end)),
        _cells(outcome.end[part] - outcome.arrival[part]),
        _cells(outcome.deadline[part]),
        in_time,
        map(_yes, outcome.admitted[part]),
        map(_yes, outcome.dropped[part]),
        outcome.restarts[part].tolist(),
        _cells(outcome.service[part]),
        _cells(outcome.fairness[part]),
    )


def _cells(values: Any) -> list[Any]:
    """Numbers as the shortest text that gives them back; nothing for those that are not finite."""
    return ["" if not finite else value for value, finite in zip(values.tolist(), np.isfinite(values).tolist())]


def _yes(flag: object) -> str:
    return "yes" if flag else "no"


TIMELINE = ("policy", "seed", "time", "devices", "waiting", "speedup")
DEVICES = ("policy", "seed", "device", "node", "kind", "held", "idle")


def timeline_lines(cases: Sequence[Case], outcomes: Sequence[SimulationOutcome]) -> Iterator[str]:
    """One line a plan: from that second on so many devices are held, so many jobs wait, and so fast are all of them."""
    rows = (
        (case.label, case.seed, *seen)
        for case, outcome in zip(cases, outcomes, strict=True)
        for seen in zip(*(values.tolist() for values in _seen(outcome)))
    )
    return _text(TIMELINE, rows)


def device_lines(cases: Sequence[Case], outcomes: Sequence[SimulationOutcome], cluster: Cluster) -> Iterator[str]:
    """One line a device: seconds that jobs held it, and seconds until the makespan without one."""
    places = [(device, node) for node in range(cluster.nodes) for device in cluster.devices_of(node)]
    rows = (
        (case.label, case.seed, device, node, cluster.kinds[node] if cluster.kinds else "", held, idle)
        for case, outcome in zip(cases, outcomes, strict=True)
        for (device, node), held, idle in zip(places, outcome.held.tolist(), outcome.idle.tolist())
    )
    return _text(DEVICES, rows)


def _seen(outcome: SimulationOutcome) -> tuple[Any, ...]:
    timeline = outcome.timeline
    return timeline.times, timeline.used, timeline.waiting, timeline.speedup


def _text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Some thousand lines at a time."""
    yield ",".join(columns) + LINE_END
    rows = iter(rows)
    while part := list(islice(rows, ROWS_AT_ONCE)):
        text = io.StringIO()
        csv.writer(text, lineterminator=LINE_END).writerows(part)
        yield text.getvalue()
