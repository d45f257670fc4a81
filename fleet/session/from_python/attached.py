"""`fleet.attach`: a run that goes on, has ended or will go on, as a program sees and steers it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.journal.directory import no_run
from fleet.journal.lock import NAME, LockWatch
from fleet.journal.run_requests import BOUNDS, SearchRequests, StopRequests
from fleet.models.program_errors import RunError
from fleet.models.results import Results, read_results
from fleet.report.standing import Look, as_json
from fleet.session.from_python.process import Process
from fleet.session.from_python.suggesting import Suggesting, Suggestion

if TYPE_CHECKING:
    from fleet.models.load import Ensemble

_POLL_SECONDS = 0.2


class Run:
    """A run by its directory, which is read anew for each question; it need not be on this machine's own disk.

    Args:
        directory: the run's.
        process: the command, where this program began the run.
    """

    def __init__(self, directory: Path, process: Process | None = None) -> None:
        self.directory, self._process = directory, process

    def __repr__(self) -> str:
        return f"fleet.attach({str(self.directory)!r})"

    @property
    def status(self) -> str:
        """starting, measuring, training, stopping, done, failed, stopped, killed or silent."""
        standing = Look(self.directory).standing()
        return "starting" if standing is None else standing.state

    def standing(self) -> dict[str, Any]:
        """How it stands: the keys of `fleet status --json`.

        Raises:
            RunError: the directory holds no run.
        """
        standing = Look(self.directory).standing(whole=True)
        if standing is None:
            raise RunError(no_run(self.directory))
        return as_json(standing)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nobody trains it; whether that is so within the time, seconds.

        Raises:
            RunError, RunLost: as `fleet.run`, where this program began it.
        """
        if self._process is not None:
            return self._process.wait(timeout)
        watch, end = LockWatch(self.directory / NAME), None if timeout is None else time.monotonic() + timeout
        while watch.holder() is not None:
            if end is not None and time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def stop(self, timeout: float | None = None) -> bool:
        """Ask it to end at its next step, with all checkpoints written; whether it has, within the time, seconds."""
        holder = LockWatch(self.directory / NAME).holder()
        if holder is not None:
            StopRequests(self.directory).stop_run(holder)
        return self.wait(timeout)

    def results(self) -> Results:
        """What its networks came to so far.

        Raises:
            RunError: the directory holds no run.
        """
        return read_results(self.directory)

    def table(self) -> Any:
        """Return the results as a pandas DataFrame, a row for each network; see `Results.table`."""
        return self.results().table()

    def load(self, members: str | list[str] = "all", **options: Any) -> Ensemble:
        """Load the run's networks as one `nn.Module`; see `fleet.load`."""
        from fleet.models.load import load

        return load(self.directory, members, **options)

    def change(self, **bounds: float) -> int:
        """Let its search go by other bounds from now on in virtual time, or from its next start on.

        Args:
            bounds: some of `trials`, `width`, `epochs` and `hours` (of the run, all its starts together).

        Returns:
            the number of the wish; the event `bounds` of the journal that has it says when it was taken in.

        Raises:
            RunError: the run has no search, or a bound cannot be.
        """
        Suggesting.of(self.directory)
        wrong = [text for name, value in bounds.items() if (text := _misfit(name, value))]
        if wrong or not bounds:
            raise RunError("; ".join(wrong) or f"name one of {', '.join(BOUNDS)}, such as trials=100")
        return SearchRequests(self.directory).change(bounds)

    def ask(self, values: Mapping[str, Any] | None = None, trust: bool = False) -> Suggestion:
        """Begin a trial that you train yourself, beside the run's: with values that the search's sampler suggests, by
        all that is known now, or with your own.

        The search sees it from its virtual time then on, and so does its journal.

        Args:
            values: dotted path -> value, for every path that the search varies; None: suggested ones.
            trust: run a sampler that the run's spec names as `module:Name`, although another user chose it.

        Raises:
            RunError: the run has no search, or it cannot suggest or have such values, or would run another's code.
        """
        return Suggesting.of(self.directory).ask(values, trust)

    def tell(self, trial: Suggestion | int, value: float | None = None, failed: bool = False) -> None:
        """Say what a trial came to that `ask` began.

        Args:
            trial: it, or its number.
            value: of the search's metric.
            failed: whether it has none.

        Raises:
            RunError: there is no such trial, it came to something else before, or the value is no finite number.
        """
        Suggesting.of(self.directory).tell(trial if isinstance(trial, int) else trial.number, value, failed)


def _misfit(name: str, value: float) -> str:
    """Why a bound cannot be; "" if it can."""
    if name not in BOUNDS:
        return f"a search has no bound {name}; it has {', '.join(BOUNDS)}"
    number = type(value) in ((int, float) if name == "hours" else (int,))
    if not number or not 0 < value < float("inf"):
        return f"{name} is {value!r}; it is a {'number' if name == 'hours' else 'whole number'} above 0"
    return ""


def attach(directory: str | PathLike[str]) -> Run:
    """A run that goes on somewhere, or has ended, by its directory; nothing is written there unless you ask for it.

    Raises:
        RunError: the directory holds no run.
    """
    found = Run(Path(directory))
    found.standing()
    return found
