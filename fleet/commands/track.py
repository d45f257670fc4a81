"""`fleet track`: a run's networks in a tracker of experiments, while it goes on or after it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fleet.commands.arguments import RunFolder
from fleet.commands.ending import end, mendable
from fleet.machine.launch.launched import BAD_INPUT
from fleet.machine.standard_streams import tell

if TYPE_CHECKING:
    from fleet.journal.lock import Lock
    from fleet.models.tracking import TrackedEnsemble

_LOCK = ".track.lock"
_USUAL_FOLDER = "mlruns"

_To = Annotated[Literal["mlflow"], typer.Option("--to", help="the tracker", show_default=False)]
_Uri = Annotated[
    str | None,
    typer.Option(
        help="a folder, or a tracking URI such as http://HOST:5000; default: MLFLOW_TRACKING_URI, else mlruns",
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
    directory: RunFolder, to: _To, uri: _Uri = None, experiment: _Experiment = None, exported: _Exported = None,
    follow: _Follow = False, every: _Every = 5.0, wait: _Wait = 120.0,
) -> None:  # fmt: skip
    """Tell MLflow of a run: an MLflow run for each network, below one for all together.

    Called again, it adds what is new. Parameters are from the spec, metrics from each epoch; files are named by their
    paths and stay where they are. Exit codes: 0, or 2 bad input.
    """
    from fleet.journal.whole_files import masked_uri
    from fleet.models.errors import HarvestError
    from fleet.models.mlflow_store import MlflowStore
    from fleet.models.tracking import Following

    look = _Look(directory, tuple(exported or ()), wait)
    try:
        with mendable(HarvestError):
            store = MlflowStore(uri or os.environ.get("MLFLOW_TRACKING_URI") or _USUAL_FOLDER, experiment)
            if follow:
                run, told = Following(every, wait, tell).follow(look.read, store)
            else:
                run = look.read()
                told = store.tell(run)
    finally:
        look.lock = None  # it goes with the last who knows it
    begun = sum(network.begin is not None for network in run.networks)
    print(f"{run.name} is {run.state}: {begun} of {len(run.networks)} networks have begun")
    print(f"{masked_uri(store.uri)}: {told.runs} runs and {told.points} values are new")


@dataclass
class _Look:
    """A run directory that this command alone tells a tracker of; others wait for its end, or are refused."""

    directory: Path
    exported: tuple[Path, ...]
    patience: float
    lock: Lock | None = None

    def read(self) -> TrackedEnsemble:
        """What a tracker is told now. HarvestError: the run has not begun."""
        from fleet.models.tracking import read_tracked

        run = read_tracked(self.directory, self.exported)
        if self.lock is None:
            self._take()
            run = read_tracked(self.directory, self.exported)
        return run

    def _take(self) -> None:
        from fleet.journal.lock import HeldError, take

        what = "another fleet track tells of this run"
        try:
            self.lock = take(self.directory / _LOCK, self.patience, lambda held: tell(f"{what}: {held}"))
        except HeldError as error:
            end(BAD_INPUT, f"{what}: {error}; let it end, or stop it")
        except OSError:
            pass  # nothing can be written there: whoever tells twice at once tells some twice
