"""`fleet simulate`: a trace, a run or drawn jobs under one policy or several, side by side."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from fleet.commands.arguments import AsJson, Start, Trust, start_of
from fleet.commands.ending import end, mendable
from fleet.commands.simulate_options import (
    BatchRanges,
    Csv,
    DrawModels,
    Drawn,
    Failures,
    Format,
    Guaranteed,
    Out,
    Policies,
    Processes,
    RatesFolder,
    RestartSeconds,
    Run,
    Seeds,
    Settings,
    Shape,
    Slack,
    StartSeconds,
    Tightness,
    TraceFile,
)
from fleet.commands.simulate_search import (
    DeviceCounts,
    MostEpochs,
    MostTrials,
    Rules,
    SearchDir,
    SearchOptions,
    Widths,
    simulate_search,
)
from fleet.machine.launch.launched import FAILED, STOPPED
from fleet.machine.standard_streams import others_on_standard_error
from preprocess.files.modules import safe_path

if TYPE_CHECKING:
    from fleet.simulator.comparing.comparison import Comparison
    from fleet.simulator.comparing.workload import Workload
    from fleet.simulator.machines.machine import Costs
    from fleet.simulator.outcome import SimulationOutcome

WIDE = 200
"""Characters of a line that goes to no terminal."""


def simulate(
    policies: Policies = None,
    trace: TraceFile = None,
    format: Format = None,
    run: Run = None,
    search: SearchDir = None,
    stopping: Rules = None,
    width: Widths = None,
    devices: DeviceCounts = None,
    trials: MostTrials = None,
    epochs: MostEpochs = None,
    trust: Trust = False,
    synthetic: Drawn = None,
    rates: RatesFolder = None,
    draw_models: DrawModels = False,
    tightness: Tightness = None,
    batch_ranges: BatchRanges = False,
    start: Start = None,
    cluster: Shape = None,
    settings: Settings = None,
    seeds: Seeds = None,
    start_seconds: StartSeconds = None,
    restart_seconds: RestartSeconds = None,
    failures: Failures = None,
    slack: Slack = 0.0,
    guaranteed: Guaranteed = None,
    processes: Processes = None,
    as_json: AsJson = False,
    csv: Csv = None,
    out: Out = None,
) -> None:
    """Play jobs on a cluster under policies, and tell what becomes of them; trains nothing.

    Exit codes: 0 done, 1 something failed, 2 bad input, 75 stopped early on purpose (run the same command again).
    """
    if search is not None:
        others = {
            "--trace": trace, "--format": format, "--run": run, "--synthetic": synthetic, "--rates": rates,
            "--draw-models": draw_models, "--tightness": tightness, "--batch-ranges": batch_ranges, "--start": start,
            "--seed": seeds, "--failures": failures, "--slack": slack, "--guaranteed": guaranteed is not None,
            "--processes": processes, "--csv": csv, "--out": out,
        }  # fmt: skip
        options = SearchOptions(
            search, tuple(stopping or ()), tuple(width or ()), tuple(devices or ()), trials, epochs,
            tuple(policies or ()), tuple(settings or ()), cluster, start_seconds, restart_seconds, trust,
        )  # fmt: skip
        simulate_search(options, others, as_json)
        return
    of_search = {"--stopping": stopping, "--width": width, "--devices": devices, "--trials": trials, "--epochs": epochs}
    with mendable():
        _check_search(policies, of_search)
        workload = _workload(trace, format, run, synthetic, rates, draw_models, tightness, batch_ranges, start)
        comparison = _compared(
            workload, (policies or [], settings or [], seeds or [0]), cluster,
            _costs(workload, start_seconds, restart_seconds), failures, slack, guaranteed,
        )  # fmt: skip
        outcomes, notes = _simulated(comparison, processes, csv, out)
    _tell(comparison, outcomes, notes, as_json, out)


def _check_search(policies: Sequence[str] | None, of_search: Mapping[str, object]) -> None:
    given = [name for name, value in of_search.items() if value]
    if given:
        raise ValueError(f"{', '.join(given)} is for a recorded search; name the run with --search DIR")
    if not policies:
        raise ValueError("under which policy? name one or more, such as --policy flotilla")


def _simulated(
    comparison: Comparison, processes: int | None, csv: Path | None, out: Path | None
) -> tuple[list[SimulationOutcome], list[str]]:
    """Play all simulations and write what was asked for; their outcomes, and what is to be said of them."""
    _check_targets(csv, out)
    jobs, notes = _checked(comparison)
    outcomes = _played(comparison, _processes(processes, len(comparison.cases)), jobs)
    notes += _undone(comparison, outcomes)
    _write(comparison, outcomes, notes, csv, out)
    return outcomes, notes


def _compared(
    workload: Workload,
    cases: tuple[list[str], list[str], list[int]],
    shape: str | None,
    costs: Costs,
    failures: str | None,
    slack: float,
    guaranteed: int | None,
) -> Comparison:
    from fleet.simulator.comparing.cases import cases_of
    from fleet.simulator.comparing.comparison import Comparison
    from fleet.simulator.comparing.failures import failures_of
    from fleet.simulator.comparing.workload import cluster_for

    failing = None if failures is None else failures_of(failures)
    return Comparison(workload, cluster_for(workload, shape), cases_of(*cases), costs, failing, slack, guaranteed)


def _workload(
    trace: Path | None, format: str | None, run: Path | None, synthetic: str | None, rates: Path | None,
    draw_models: bool, tightness: str | None, batch_ranges: bool, start: str | None,
) -> Workload:  # fmt: skip
    from fleet.simulator.comparing.workload import Workload, synthetic_of

    drawn = None if synthetic is None else synthetic_of(synthetic)
    bounds = None if tightness is None else _bounds(tightness)
    return Workload(trace, format, run, drawn, rates, draw_models, bounds, batch_ranges, start_of(start))


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
        if 0 <= low <= high < float("inf"):
            return low, high
    except ValueError:
        pass
    raise ValueError(f"--tightness {text}: two numbers, the first not above the second, such as 0.5,1.5")


def _costs(workload: Workload, start: float | None, restart: float | None) -> Costs:
    """The costs that the options ask for; else the run's."""
    from fleet.simulator.comparing.workload import costs_of_run
    from fleet.simulator.machines.machine import Costs

    paid = Costs() if workload.run is None else costs_of_run(workload.run)
    return Costs(paid.start if start is None else start, paid.restart if restart is None else restart)


def _check_targets(csv: Path | None, out: Path | None) -> None:
    """What would fail after hours is told before them."""
    if csv is not None and not csv.resolve().parent.is_dir():
        raise ValueError(f"--csv {csv}: there is no folder {csv.resolve().parent}; make it first")
    if csv is not None and csv.is_dir():
        raise ValueError(f"--csv {csv} is a folder; name a file")
    if out is not None and (out / "journal.jsonl").exists():
        raise ValueError(f"--out {out} holds a run, whose report would be lost; name another folder")
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder")


def _checked(comparison: Comparison) -> tuple[int, list[str]]:
    """Load the workload, so that its mistakes are told at once; return the number of jobs, and notes."""
    from fleet.simulator.comparing.workload import run_itself

    trace, _, _ = comparison.load(comparison.cases[0].seed)
    notes = list(trace.notes)
    if comparison.workload.rates is None and comparison.workload.trace is not None and not trace.curves:
        notes.append("no rates are given: a job trains as long as the trace says, in proportion on other device counts")
    if comparison.workload.run is not None and (itself := run_itself(comparison.workload.run)):
        notes.append(itself)
    if comparison.workload.run is not None:
        costs = comparison.costs
        notes.append(
            f"a job loses {costs.start:.2g} s with its first devices, {costs.restart:.2g} s with each change of them"
        )
    return len(trace), notes


def _undone(comparison: Comparison, outcomes: Sequence[SimulationOutcome]) -> list[str]:
    """Jobs that were neither done nor dropped when nothing could happen any more."""
    left = [int((~outcome.finished & ~outcome.dropped).sum()) for outcome in outcomes]
    return [
        f"{case.label}, seed {case.seed}: {count} jobs were never done: they wait for devices that never come"
        for case, count in zip(comparison.cases, left)
        if count
    ]


def _processes(asked: int | None, cases: int) -> int:
    if asked is not None and asked < 1:
        raise ValueError(f"--processes {asked}: name 1 or more")
    return min(cases, asked or len(os.sched_getaffinity(0)))


def _played(comparison: Comparison, processes: int, jobs: int) -> list[SimulationOutcome]:
    from fleet.simulator.comparing.comparison import SimulationFailed, compare

    total = len(comparison.cases) * jobs
    try:
        with _Ending() as ending, safe_path(), others_on_standard_error(), _progress(total) as progress:
            return compare(comparison, processes, progress, ending.check)
    except SimulationFailed as error:
        end(FAILED, str(error))
    except KeyboardInterrupt:
        end(STOPPED, "stopped; nothing was written: run the same command again")


class _Ending:
    """Ctrl-C and SIGTERM end what goes on inside, even where the interrupt itself is swallowed, as in a finalizer."""

    def __init__(self) -> None:
        self._asked = False

    def __enter__(self) -> _Ending:
        self._before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._asked:
            raise KeyboardInterrupt

    def _take(self, *_: object) -> None:
        self._asked = True
        raise KeyboardInterrupt


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar on standard error if it is a terminal; it counts jobs that are done, of all policies."""
    from rich.console import Console

    from fleet.report.terminal import progress_bar

    with progress_bar(Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=total, note="")
        yield (lambda done: None) if bar.disable else _Steps(lambda done: bar.advance(task, done))


class _Steps:
    """Gathers progress and shows it some times a second: a bar is slower than a simulated job."""

    def __init__(self, show: Callable[[int], object]) -> None:
        self._show, self._done, self._next = show, 0, 0.0

    def __call__(self, done: int) -> None:
        self._done += done
        if (now := monotonic()) >= self._next:
            self._show(self._done)
            self._done, self._next = 0, now + 0.1


def _write(
    comparison: Comparison,
    outcomes: Sequence[SimulationOutcome],
    notes: Sequence[str],
    csv: Path | None,
    out: Path | None,
) -> None:
    """Every file that is asked for, whole or not at all."""
    from fleet.commands.simulated.results import write_folder, write_jobs

    try:
        if csv is not None:
            write_jobs(csv, comparison, outcomes)
        if out is not None:
            write_folder(out, comparison, outcomes, notes)
    except OSError as error:
        end(FAILED, f"{error.filename or out or csv}: it cannot be written: {error.strerror or error}")


def _tell(
    comparison: Comparison, outcomes: Sequence[SimulationOutcome], notes: Sequence[str], as_json: bool, out: Path | None
) -> None:
    """The figures on standard output, and notes beside them."""
    from fleet.commands.simulated.results import PAGE, comparison_json

    if as_json:
        print(json.dumps(comparison_json(comparison, outcomes), indent=1))
        return
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    for table in _tables(comparison, outcomes, console.width):
        console.print(table)
    for note in notes:
        print(f"note: {note}")
    if out is not None:
        print(f"report: {out / PAGE}")


def _tables(comparison: Comparison, outcomes: Sequence[SimulationOutcome], width: int) -> Iterator[Any]:
    """A column a policy; so many tables one after another as the width asks for."""
    from fleet.commands.simulated.side_by_side import columns, rows
    from fleet.report.terminal import ruled_table
    from fleet.simulator.comparing.cluster_shape import shape_of

    compared = columns(comparison.cases, outcomes)
    told = rows(compared)
    widest = [max(map(len, (column.label, *(cells[i] for _, cells in told)))) for i, column in enumerate(compared)]
    room = width - max(len(title) for title, _ in told)
    for part in _parts(widest, room):
        title = f"{comparison.workload.name} on {shape_of(comparison.cluster)}"
        table = ruled_table(title)
        table.add_column("", no_wrap=True)
        for i in part:
            table.add_column(compared[i].label, justify="right")
        for metric, cells in told:
            table.add_row(metric, *(cells[i] for i in part))
        yield table


def _parts(widest: Sequence[int], room: int) -> Iterator[range]:
    """Columns that fit beside each other, at least one; each takes three characters more than its text."""
    first = taken = 0
    for i, width in enumerate(widest):
        if i > first and taken + width + 3 > room - 4:
            yield range(first, i)
            first, taken = i, 0
        taken += width + 3
    yield range(first, len(widest))
