"""`fleet best`, `export`, `report` and `track`: what a run has come to, read from its directory."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.arguments import AsJson, RunFolder, Trust
from fleet.commands.entry import end, mendable
from fleet.machine.launch.launched import BAD_INPUT
from fleet.machine.standard_streams import tell
from fleet.report.terminal import plain_table
from fleet.report.wording import printable

if TYPE_CHECKING:
    from fleet.journal.lock import Lock
    from fleet.journal.metric_order import MetricOrder
    from fleet.models.members import Members
    from fleet.report.tracker import TrackedEnsemble


_SECONDS_IN_AN_HOUR = 3600.0
COLUMNS = ("job", "status", "metric", "value", "epoch", "parameters", "device_hours", "checkpoint", "checkpoint_epoch")

_Top = Annotated[int | None, typer.Option(min=1, help="how many networks to list; default: all", show_default=False)]
_Metric = Annotated[
    str | None,
    typer.Option(
        help="by which networks are compared; default: that of the search, else of checkpoints.best, else the one at "
        "which networks stop, else accuracy, else the held-out loss, else the loss",
        show_default=False,
    ),
]
_Better = Annotated[
    str | None,
    typer.Option(
        help="whether more or less of the metric is better, higher or lower, where nobody declares it; default: as the "
        "run's journal says",
        show_default=False,
    ),
]
_AsCsv = Annotated[bool, typer.Option("--csv", help="print comma-separated values, a line for each network")]


def best(
    directory: RunFolder,
    top: _Top = None,
    metric: _Metric = None,
    better: _Better = None,
    as_csv: _AsCsv = False,
    as_json: AsJson = False,
) -> None:
    """List a run's networks, the best first, each by the best value that a metric had after one of its epochs.

    By the metric of a search, each by its last value, as the search compares them.

    Reads only, also while the run goes on. Exit codes: 0, or 2 if there is nothing to list.
    """
    from fleet.journal.metric_order import HIGHER, LOWER
    from fleet.models.errors import ModelsError
    from fleet.models.members import read_members
    from fleet.spec import SpecError

    with mendable(ModelsError, SpecError):
        if better not in (None, HIGHER, LOWER):
            raise ModelsError(f"--better {better}: it is higher or lower")
        members = read_members(directory)
        rows = list(_best_rows(members, members.order(metric, better), top))
    if as_json:
        print(json.dumps(rows, indent=1))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print_table(rows)


def _best_rows(members: Members, order: MetricOrder, top: int | None) -> Iterator[dict[str, Any]]:
    """One row for each network, with all COLUMNS; what is not known is None."""
    from fleet.models.members import epoch_of, parameter_count

    for member, found in members.ranked(order)[:top]:
        path = member.checkpoint_of(found.epoch) or member.newest
        values = (
            member.name,
            member.status,
            order.metric,
            found.value,
            found.epoch,
            path and parameter_count(path),
            round(member.device_seconds / _SECONDS_IN_AN_HOUR, 6),
            path and str(path),
            path and epoch_of(path),
        )
        yield dict(zip(COLUMNS, values))


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.text import Text

    from fleet.report import wording

    table = plain_table()
    metric = rows[0]["metric"]
    for title in ("network", "status", wording.metric_title(metric).lower(), "epoch", "parameters", "device-hours"):
        table.add_column(title, justify="left" if title in ("network", "status") else "right", no_wrap=True)
    table.add_column("checkpoint", overflow="fold")
    for row in rows:
        parameters = "" if row["parameters"] is None else f"{row['parameters']:,}"
        table.add_row(
            Text(wording.printable(row["job"])),
            row["status"],
            wording.metric(metric, row["value"]),
            str(row["epoch"]),
            parameters,
            f"{row['device_hours']:.4f}",
            Text(_checkpoint_text(row)),
        )
    Console().print(table)


def _checkpoint_text(row: dict[str, Any]) -> str:
    """The checkpoint's path, and of which epoch it is where that is not the best one."""
    if row["checkpoint"] is None:
        return "none yet"
    other = row["checkpoint_epoch"] != row["epoch"]
    return row["checkpoint"] + (f" (of epoch {row['checkpoint_epoch']})" if other else "")


PROGRAM = ".pt2"

_Job = Annotated[str, typer.Argument(help="one of the run's jobs", metavar="JOB", show_default=False)]
_File = Annotated[
    Path, typer.Argument(help="ends in .safetensors, or in .pt2 for a program", metavar="FILE", show_default=False)
]
_Which = Annotated[str, typer.Option("--checkpoint", help="best: the best that is kept, else the last; or last")]
_Program = Annotated[
    Path | None, typer.Option(help="write a program of torch.export, too; ends in .pt2", show_default=False)
]


def export(
    directory: RunFolder, job: _Job, file: _File, which: _Which = "best", program: _Program = None, trust: Trust = False
) -> None:
    """Write a trained network's weights to FILE, with where they are from and how good they are beside them.

    Plain torch loads FILE.safetensors: model.load_state_dict(safetensors.torch.load_file(FILE)). A program (.pt2) runs
    without the network's code: torch.export.load(FILE).module(). Reads the run only. Exit codes: 0, or 2 bad input.
    """
    from fleet.models.errors import ModelsError
    from fleet.models.recorded_spec import check_trusted
    from fleet.spec import ReferenceProblem, SpecError
    from fleet.workers.agreement import BadInput
    from preprocess import SourceError
    from preprocess.samples.errors import TransformError
    from trainers import CheckpointError

    kinds = (ModelsError, SpecError, BadInput, ReferenceProblem, CheckpointError, SourceError, TransformError)
    with mendable(*kinds):
        check_trusted(directory, trust)
        if which not in ("best", "last"):
            raise ModelsError(f"--checkpoint {which}: choose best or last")
        if file.suffix == PROGRAM:
            _export(directory, job, None, file, which)
        else:
            _check_ending(program)
            _export(directory, job, file, program, which)


def _check_ending(program: Path | None) -> None:
    from fleet.models.errors import ModelsError

    if program is not None and program.suffix != PROGRAM:
        raise ModelsError(f"--program {program}: let its name end in {PROGRAM}")


def _export(directory: Path, name: str, weights: Path | None, program: Path | None, which: str) -> None:
    """Write what is asked for, and say what it is."""
    from fleet.models.export import Weights, card_of, write_weights
    from fleet.models.members import read_members
    from fleet.models.network import read_network

    members = read_members(directory)
    member = members.of(name)
    network = read_network(member, members.spec, which)
    is_best = which == "best" and member.kept is not None and network.path == member.kept.path
    values = {} if network.checkpoint.step else network.checkpoint.history.at(network.checkpoint.epoch)
    told = ", ".join(f"{printable(metric)} {value:.6g}" for metric, value in values.items())
    what = f"the {'best' if is_best else 'last'} checkpoint, epoch {network.checkpoint.epoch}"
    print(f"{name}: {what}: {told or 'no metrics'}")
    if weights is not None:
        taken = Weights.of(network.model)
        write_weights(weights, taken, card_of(network, member, members.spec, taken.tied))
        print(f"{weights}: {len(taken.tensors)} tensors; {weights}.json says where they are from")
    if program is not None:
        from fleet.models.export import example_inputs, write_program

        example = network.prepare(example_inputs(members.spec, member.job))
        write_program(program, network.model, example, f"job {name}")
        shape = ", ".join(map(str, example.shape[1:]))
        print(f"{program}: a program of torch.export that takes ({', '.join(['samples', shape])}) of {example.dtype}")


def report(
    directory: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="where the page goes; default: report.html in DIR", show_default=False),
    ] = None,
) -> None:
    """Write one self-contained report.html from the run's journal."""
    from fleet.report.run_page import write_report

    if not (directory / "journal.jsonl").is_file():
        end(BAD_INPUT, f"{directory} holds no run: there is no journal.jsonl in it; name the --out of a `fleet run`")
    print(write_report(directory, out))


_LOCK = ".track.lock"

_To = Annotated[
    str, typer.Option("--to", metavar="NAME", help="mlflow, tensorboard, wandb, or module:Name", show_default=False)
]
_Uri = Annotated[
    str | None,
    typer.Option(
        help="a folder, or what the tracker takes: for MLflow a tracking URI such as http://HOST:5000; default: of "
        "mlflow MLFLOW_TRACKING_URI, else mlruns; of tensorboard the folder tensorboard; of others the folder tracked",
        metavar="PATH|URI",
        show_default=False,
    ),
]
_Experiment = Annotated[
    str | None,
    typer.Option(help="the experiment's name; default: the name of the run's spec", metavar="NAME", show_default=False),
]
_Exported = Annotated[
    list[Path] | None,
    typer.Option(
        help="a file of `fleet export`, or a folder with such files; may be given several times; DIR is looked at, too",
        metavar="PATH",
        show_default=False,
    ),
]
_Follow = Annotated[bool, typer.Option("--follow", help="go on until the run ends")]
_Every = Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="between two looks of --follow, at least")]
_Wait = Annotated[
    float,
    typer.Option(
        min=0, metavar="SECONDS", help="with --follow: how long to wait for a run to begin, or to be heard again"
    ),
]


def track(
    directory: RunFolder,
    to: _To,
    uri: _Uri = None,
    experiment: _Experiment = None,
    exported: _Exported = None,
    follow: _Follow = False,
    every: _Every = 5.0,
    wait: _Wait = 120.0,
) -> None:
    """Tell a tracker of a run: MLflow, TensorBoard, Weights & Biases, or one of your own.

    Called again, it adds what is new. Parameters are from the spec, metrics from each epoch; files are named by their
    paths and stay where they are. Exit codes: 0, or 2 bad input.
    """
    from fleet.journal.whole_files import masked_uri
    from fleet.report.tracked_run import Following
    from fleet.report.tracker import Tracker, TrackingError
    from fleet.spec.plugins import TRACKERS, BadPart
    from fleet.spec.references import importable

    look = _Look(directory, tuple(exported or ()), wait)
    with mendable(TrackingError, BadPart), importable([Path.cwd()]), ExitStack() as left:
        left.callback(look.release)
        tracker: Tracker = TRACKERS.make(to, TRACKERS.load(to), (uri, experiment), {})
        left.callback(tracker.close)
        if follow:
            run, told = Following(every, wait, tell).follow(look.read, tracker)
        else:
            run = look.read()
            told = tracker.tell(run)
    begun = sum(network.begin is not None for network in run.networks)
    print(f"{run.name} is {run.state}: {begun} of {len(run.networks)} networks have begun")
    print(f"{masked_uri(tracker.uri)}: {told.runs} runs and {told.points} values are new")


@dataclass
class _Look:
    """A run directory that this command alone tells a tracker of; others wait for its end, or are refused."""

    directory: Path
    exported: tuple[Path, ...]
    patience: float
    lock: Lock | None = None

    def read(self) -> TrackedEnsemble:
        """Return what a tracker is told now. TrackingError: the run has not begun."""
        from fleet.report.tracked_run import read_tracked

        run = read_tracked(self.directory, self.exported)
        if self.lock is None:
            self._take()
            run = read_tracked(self.directory, self.exported)
        return run

    def release(self) -> None:
        """Let others tell a tracker of it."""
        self.lock = None  # it goes with the last who knows it

    def _take(self) -> None:
        from fleet.journal.lock import HeldError, take

        what = "another fleet track tells of this run"
        try:
            self.lock = take(self.directory / _LOCK, self.patience, lambda held: tell(f"{what}: {held}"))
        except HeldError as error:
            end(BAD_INPUT, f"{what}: {error}; let it end, or stop it")
        except OSError:
            pass  # nothing can be written there: whoever tells twice at once tells some twice
