"""`fleet simulate --search DIR`: what other rules, widths, policies and devices make of a recorded search."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.ending import end, mendable
from fleet.machine.launch.launched import FAILED, STOPPED
from fleet.machine.standard_streams import others_on_standard_error

if TYPE_CHECKING:
    from rich.table import Table

    from fleet.simulator.comparing.cases import Case
    from fleet.simulator.machines.machine import Costs
    from fleet.simulator.searching.recorded_search import RecordedSearch
    from fleet.simulator.searching.searches import Replayed, SearchCase

_WIDE = 200
"""Characters of a line that goes to no terminal."""


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
    from fleet.simulator.comparing.comparison import SimulationFailed
    from fleet.simulator.searching.recorded_search import read_search
    from fleet.simulator.searching.searches import play, replay_json

    with mendable():
        given = [name for name, value in others.items() if value]
        if given:
            raise ValueError(f"{', '.join(given)} is for jobs, and --search brings its own trials; leave it out")
        record = read_search(options.run)
        cases, costs = _cases(record, options), _costs(record, options)
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
    _tell(record, found, costs, options.run)


@contextmanager
def _rules_at_home(options: SearchOptions, record: RecordedSearch) -> Iterator[None]:
    """Let stopping rules of one's own be found where the run found them, and in the current folder.

    Raises:
        HarvestError: the run's rule is another user's code, and not trusted.
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


def _cases(record: RecordedSearch, options: SearchOptions) -> tuple[SearchCase, ...]:
    from fleet.simulator.comparing.cases import Case
    from fleet.simulator.comparing.cases import cases_of as policies_of
    from fleet.simulator.searching import searches
    from fleet.simulator.searching.rules import stopping_of

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


def _costs(record: RecordedSearch, options: SearchOptions) -> Costs:
    from fleet.simulator.machines.machine import Costs

    start = record.overhead if options.start is None else options.start
    return Costs(start, start if options.restart is None else options.restart)


def _tell(record: RecordedSearch, found: Sequence[Replayed], costs: Costs, run: Path) -> None:
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=_WIDE)
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
        told["stopping"] + (" (as it was)" if as_it_was else ""), one.case.policy.label,
        str(told["width"]), str(told["devices"]), metric(record.told.metric, best),
        "-" if best is None else duration(told["best_seconds"]), duration(told["makespan"]), str(told["trials"]),
        str(told["done"]), str(told["epochs"]), f"{told['device_hours']:.3g}", missing, told["best"] or "-",
    )  # fmt: skip


def _notes(record: RecordedSearch, found: Sequence[Replayed], costs: Costs, run: Path) -> Iterator[str]:
    from fleet.report.wording import duration, plural
    from fleet.simulator.comparing.workload import run_itself
    from fleet.simulator.searching.rules import label_of
    from fleet.simulator.searching.searches import replay_json

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
