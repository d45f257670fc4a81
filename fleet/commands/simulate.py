"""`fleet simulate`: jobs under one policy or several, side by side; or a recorded search, decided anew."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.arguments import AsJson, Start, Trust, start_of
from fleet.commands.entry import end, mendable
from fleet.machine.launch.launched import FAILED, STOPPED
from fleet.machine.standard_streams import others_on_standard_error
from preprocess.files.modules import safe_path

if TYPE_CHECKING:
    from rich.table import Table

    from fleet.simulator.comparing.compared_policies import Comparison
    from fleet.simulator.comparing.settings import Case
    from fleet.simulator.comparing.workload import Workload
    from fleet.simulator.machines.machine import Costs
    from fleet.simulator.outcome import SimulationOutcome
    from fleet.simulator.searching.recorded_search import RecordedSearch
    from fleet.simulator.searching.searches import Replayed, SearchCase


Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", metavar="NAME", help="a policy, module:Name, or either:parameter=value,...; may be repeated"
    ),
]
TraceFile = Annotated[Path | None, typer.Option(metavar="FILE", help="the jobs, in any known format")]
Format = Annotated[str | None, typer.Option(metavar="NAME", help="the trace's format; default: found by its columns")]
Run = Annotated[Path | None, typer.Option(metavar="DIR", help="in place of a trace: the jobs of a run, at its rates")]
Drawn = Annotated[
    str | None, typer.Option(metavar="jobs=N,gap=S,...", help="in place of a trace: jobs drawn from the table of rates")
]
RatesFolder = Annotated[Path | None, typer.Option(metavar="DIR", help="measured rates; default: the trace's durations")]
DrawModels = Annotated[bool, typer.Option("--draw-models", help="jobs get a model, and work, from the table of rates")]
Tightness = Annotated[
    str | None, typer.Option(metavar="LOW,HIGH", help="with --draw-models: deadlines at arrival + lambda x duration")
]
BatchRanges = Annotated[
    bool, typer.Option("--batch-ranges", help="policies may choose a job's batch between the measured ones")
]
Shape = Annotated[
    str | None, typer.Option(metavar="SHAPE", help="16x8, or 8x4:v100,4x4:p100; default with --run: the run's nodes")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a parameter of the policies that have it")
]
Seeds = Annotated[
    list[int] | None, typer.Option("--seed", metavar="S", help="root of all draws; may be repeated; default: 0")
]
StartSeconds = Annotated[
    float | None,
    typer.Option(
        metavar="S", help="seconds that a job loses when it first gets devices; default: 0, or the run's median"
    ),
]
RestartSeconds = Annotated[
    float | None,
    typer.Option(metavar="S", help="seconds that a job loses when it gets other devices; default: the same"),
]
Failures = Annotated[
    str | None, typer.Option(metavar="FILE|mean=S,repair=S", help="nodes that fail, from a file or drawn")
]
Slack = Annotated[
    float, typer.Option(metavar="SAMPLES", help="how far a job may be ahead of others that share its samples")
]
Guaranteed = Annotated[
    int | None, typer.Option(metavar="PRIORITY", help="jobs of this priority or a larger one take devices at once")
]
Processes = Annotated[int | None, typer.Option(metavar="N", help="simulations at once; default: one a core")]
Csv = Annotated[Path | None, typer.Option(metavar="FILE", help="write one line for each job")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="write report.html, simulation.json and tables of jobs, devices and time"),
]


SearchDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="in place of jobs: the search of a run, decided anew by its curves")
]
Rules = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE",
        help="with --search: another stopping rule, as halving:eta=3,rungs=1/3/9, or module:Name; repeatable",
    ),
]
Widths = Annotated[
    list[int] | None, typer.Option("--width", metavar="N", help="with --search: another width; may be repeated")
]
DeviceCounts = Annotated[
    list[int] | None,
    typer.Option("--devices", metavar="N", help="with --search: so many devices of one node; may be repeated"),
]
MostTrials = Annotated[int | None, typer.Option(min=1, metavar="N", help="with --search: at most so many trials")]
MostEpochs = Annotated[int | None, typer.Option(min=1, metavar="N", help="with --search: at most so many epochs")]


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
            "--trace": trace,
            "--format": format,
            "--run": run,
            "--synthetic": synthetic,
            "--rates": rates,
            "--draw-models": draw_models,
            "--tightness": tightness,
            "--batch-ranges": batch_ranges,
            "--start": start,
            "--seed": seeds,
            "--failures": failures,
            "--slack": slack,
            "--guaranteed": guaranteed is not None,
            "--processes": processes,
            "--csv": csv,
            "--out": out,
        }
        options = SearchOptions(
            search,
            tuple(stopping or ()),
            tuple(width or ()),
            tuple(devices or ()),
            trials,
            epochs,
            tuple(policies or ()),
            tuple(settings or ()),
            cluster,
            start_seconds,
            restart_seconds,
            trust,
        )
        simulate_search(options, others, as_json)
        return
    of_search = {"--stopping": stopping, "--width": width, "--devices": devices, "--trials": trials, "--epochs": epochs}
    with mendable():
        _check_search(policies, of_search)
        workload = _workload(trace, format, run, synthetic, rates, draw_models, tightness, batch_ranges, start)
        comparison = _compared(
            workload,
            (policies or [], settings or [], seeds or [0]),
            cluster,
            _costs(workload, start_seconds, restart_seconds),
            failures,
            slack,
            guaranteed,
        )
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
    from fleet.simulator.comparing.compared_policies import Comparison
    from fleet.simulator.comparing.settings import cases_of
    from fleet.simulator.comparing.workload import cluster_for, failures_of

    failing = None if failures is None else failures_of(failures)
    return Comparison(workload, cluster_for(workload, shape), cases_of(*cases), costs, failing, slack, guaranteed)


def _workload(
    trace: Path | None,
    format: str | None,
    run: Path | None,
    synthetic: str | None,
    rates: Path | None,
    draw_models: bool,
    tightness: str | None,
    batch_ranges: bool,
    start: str | None,
) -> Workload:
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
    from fleet.simulator.comparing.compared_policies import SimulationFailed, compare

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
    from fleet.commands.simulated_report import write_folder, write_jobs

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
    from fleet.commands.simulated_report import PAGE, comparison_json

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
    from fleet.commands.simulated_report import columns, rows
    from fleet.report.terminal import ruled_table
    from fleet.simulator.comparing.settings import shape_of

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


@dataclass(frozen=True)
class SearchOptions:
    """What is asked of a recorded search, as on the command line; empty or None: as it was."""

    run: Path
    stopping: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    trials: int | None = None
    epochs: int | None = None
    policies: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    cluster: str | None = None
    start: float | None = None
    restart: float | None = None
    trust: bool = False


def simulate_search(options: SearchOptions, others: Mapping[str, Any], as_json: bool) -> None:
    """Play a recorded search again and print what comes of it; the program ends where that cannot be.

    Args:
        others: options that are for jobs alone, by name; those that are given are refused.
    """
    from fleet.simulator.comparing.compared_policies import SimulationFailed
    from fleet.simulator.searching.recorded_search import read_search
    from fleet.simulator.searching.searches import play, replay_json

    with mendable():
        given = [name for name, value in others.items() if value]
        if given:
            raise ValueError(f"{', '.join(given)} is for jobs, and --search brings its own trials; leave it out")
        record = read_search(options.run)
        cases, costs = _search_cases(record, options), _search_costs(record, options)
        try:
            with _rules_at_home(options, record), others_on_standard_error():
                found = [play(record, case, costs) for case in cases]
        except SimulationFailed as error:
            end(FAILED, str(error))
        except KeyboardInterrupt:
            end(STOPPED, "stopped; run the same command again")
    if as_json:
        rows = [replay_json(record, one) for one in found]
        print(json.dumps({"recorded": rows[0], "runs": rows[1:]}, indent=1))
        return
    _tell_search(record, found, costs, options.run)


@contextmanager
def _rules_at_home(options: SearchOptions, record: RecordedSearch) -> Iterator[None]:
    """Let stopping rules of one's own be found where the run found them, and in the current folder.

    Raises:
        ModelsError: the run's rule is another user's code, and not trusted.
    """
    from fleet.journal.whole_files import EnsembleFile
    from fleet.models.recorded_spec import check_trusted
    from fleet.spec.references import importable

    folders = [Path.cwd()]
    if ":" in record.section.stopping.name:
        check_trusted(options.run, options.trust)
        known = EnsembleFile.read(options.run)
        folders = [*([] if known is None else [Path(known.folder)]), *folders]
    with importable(folders):
        yield


def _search_cases(record: RecordedSearch, options: SearchOptions) -> tuple[SearchCase, ...]:
    from fleet.simulator.comparing.settings import Case
    from fleet.simulator.comparing.settings import cases_of as policies_of
    from fleet.simulator.searching import searches
    from fleet.simulator.searching.searches import stopping_of

    for name, numbers in {"--width": options.widths, "--devices": options.devices}.items():
        if any(number < 1 for number in numbers):
            raise ValueError(f"{name} {min(numbers)}: name 1 or more")
    name, parameters = record.policy
    own = Case(name, {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()})
    policies: list[Case] = [own]
    if options.policies or options.settings:
        policies += policies_of(options.policies or [name], options.settings, [0])
    rules = [stopping_of(text) for text in options.stopping]
    clusters = searches.clusters_of(options.run, options.devices, options.cluster)
    return searches.search_cases_of(record, rules, options.widths, policies, clusters, options.trials, options.epochs)


def _search_costs(record: RecordedSearch, options: SearchOptions) -> Costs:
    from fleet.simulator.machines.machine import Costs

    start = record.overhead if options.start is None else options.start
    return Costs(start, start if options.restart is None else options.restart)


def _tell_search(record: RecordedSearch, found: Sequence[Replayed], costs: Costs, run: Path) -> None:
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    console.print(_table(record, found))
    for note in _notes(record, found, costs, run):
        console.print(f"note: {note}", soft_wrap=True, markup=False, highlight=False)


def _table(record: RecordedSearch, found: Sequence[Replayed]) -> Table:
    """A row a case; the first is the search as it was."""
    from fleet.report.terminal import ruled_table

    metric = record.told.metric
    table = ruled_table(f"{record.name}, what its search would have found")
    for title in ("stopping", "policy"):
        table.add_column(title, overflow="fold")
    for title in ("width", "devices", metric, "after", "ends", "trials", "whole", "epochs", "device-hours", "missing"):
        table.add_column(title, justify="right", no_wrap=title not in ("missing",))
    table.add_column("best", overflow="fold")
    for number, one in enumerate(found):
        table.add_row(*_cells(record, one, as_it_was=not number))
    return table


def _cells(record: RecordedSearch, one: Replayed, as_it_was: bool) -> tuple[str, ...]:
    from fleet.report.wording import duration, metric
    from fleet.simulator.searching.searches import replay_json

    told = replay_json(record, one)
    best = told["best_value"]
    missing = f"{told['missing_epochs']} epochs of {told['missing_trials']}" if told["missing_trials"] else "-"
    return (
        told["stopping"] + (" (as it was)" if as_it_was else ""),
        one.case.policy.label,
        str(told["width"]),
        str(told["devices"]),
        metric(record.told.metric, best),
        "-" if best is None else duration(told["best_seconds"]),
        duration(told["makespan"]),
        str(told["trials"]),
        str(told["done"]),
        str(told["epochs"]),
        f"{told['device_hours']:.3g}",
        missing,
        told["best"] or "-",
    )


def _notes(record: RecordedSearch, found: Sequence[Replayed], costs: Costs, run: Path) -> Iterator[str]:
    from fleet.report.wording import duration, plural
    from fleet.simulator.comparing.workload import run_itself
    from fleet.simulator.searching.searches import label_of, replay_json

    for one in found:
        told = replay_json(record, one)
        if told["missing_trials"]:
            yield (
                f"{label_of(one.case.asked.stopping)}, width {told['width']}, on {plural(told['devices'], 'device')}: "
                f"nobody trained {plural(told['missing_epochs'], 'epoch')} of "
                f"{plural(told['missing_trials'], 'trial')} that it wants. All is sure until "
                f"{duration(told['known_seconds'])}; from then on these count as failed, so that it may find better"
            )
    there = len(record.told.trials)
    if record.learns and len(found) > 1:
        yield (
            f"the sampler {record.section.sampler.name} learns from results: under another rule it would have "
            f"suggested others than the {there} trials that are played"
        )
    if any(one.case.asked.trials is None or one.case.asked.trials > there for one in found[1:]):
        yield f"there are {plural(there, 'trial')}: further ones would be tried, and nobody knows what they come to"
    if itself := run_itself(run):
        yield itself
    yield f"a trial loses {costs.start:.2g} s whenever it is given devices; trials share no samples here"
