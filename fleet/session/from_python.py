"""`fleet.run`: the command `fleet run`, from Python."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fleet.journal.directory import no_run
from fleet.journal.journal import read_journal
from fleet.journal.lock import NAME, LockWatch
from fleet.journal.run_requests import BOUNDS, OwnTrial, SearchRequests, StopRequests
from fleet.journal.whole_files import EnsembleFile, strict_json
from fleet.machine.launch.launched import BAD_INPUT, DONE, FAILED, STOPPED
from fleet.models.errors import ModelsError, RunError, RunLost
from fleet.models.recorded_spec import check_trusted
from fleet.models.results import Results, read_results
from fleet.report.standing import Look, as_json
from fleet.search import OWN_TRIALS, Record, Status
from fleet.search.journalled import Journalled, journalled
from fleet.search.samplers import sampler_of
from fleet.search.space import check_one_metric, check_values
from fleet.spec import EnsembleSpec, SearchSpec, importable
from fleet.spec.plugins import BadPart
from preprocess.files.modules import python
from preprocess.files.writing import make_folder, write_whole

if TYPE_CHECKING:
    from fleet.models.load import Ensemble
    from fleet.spec import EnsembleSpec


GIVEN = "given.yaml"
"""In the run directory: the spec that a program gave as values."""


def run(
    spec: str | PathLike[str] | Mapping[str, Any] | EnsembleSpec,
    out: str | PathLike[str] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    options: tuple[str, ...] = (),
    wait: bool = True,
) -> Run:
    """Train an ensemble, or go on with it, as the command `fleet run` does: in processes of its own.

    Args:
        spec: a YAML file, the values of one, or a spec that `fleet.spec` made; modules and relative paths of values are
            looked for in the current folder.
        out: the run directory; None: runs/NAME.
        settings: dotted path of a key of the spec -> another value, as with `--set`.
        options: further options of the command, such as ("--trainers", "2").
        wait: whether to come back at the end of the run only. Its output is shown meanwhile; an interrupt stops it in
            good order, and is raised again.

    Returns:
        the run; `status` tells how it ended: done, failed or stopped.

    Raises:
        SpecError: the spec is wrong; with all that is wrong.
        RunError: anything else that a person can mend.
        RunLost: it ended before it could say how.
    """
    from fleet.spec import EnsembleSpec, load

    changes = [f"{path}={json.dumps(value)}" for path, value in (settings or {}).items()]
    if isinstance(spec, Mapping):
        read = EnsembleSpec.from_mapping(spec, changes, Path.cwd())
    elif isinstance(spec, EnsembleSpec):
        read = spec
    else:
        read = load(spec, changes)
    directory = Path(out) if out is not None else Path("runs") / read.name
    words = [*_words(spec, directory), "--out", str(directory), *options]
    for change in changes:
        words += ["--set", change]
    running = Run(directory, Process.start(python("-m", "fleet", "run", *words)))
    if wait:
        running.wait()
    return running


def _words(spec: str | PathLike[str] | Mapping[str, Any] | EnsembleSpec, directory: Path) -> list[str]:
    """The words that name the spec's file; values are written into the run directory."""
    if isinstance(spec, (str, PathLike)):
        return [str(spec)]
    values, folder = (spec, Path.cwd()) if isinstance(spec, Mapping) else (spec.to_mapping(), spec.folder)
    make_folder(directory)
    write_whole(directory / GIVEN, strict_json(values, indent=1) + "\n")
    return [str(directory / GIVEN), "--folder", str(folder)]


_POLL_SECONDS = 0.1
_TAIL = 20  # lines


@dataclass
class Process:
    """A command that goes on whatever becomes of this program: what it writes goes into files.

    Args:
        child: the command.
        output, errors: what it writes.
    """

    child: subprocess.Popen[bytes]
    output: IO[str]
    errors: IO[str]
    _heard: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, command: Sequence[str]) -> Process:
        """Start a command in a session of its own: a notebook's interrupts do not reach it."""
        files = []
        with tempfile.TemporaryDirectory(prefix="fleet-run-") as folder:
            for name in ("output", "errors"):
                path = Path(folder) / name
                files.append((open(path, "wb"), open(path, errors="replace")))  # noqa: SIM115 - live as long as it
            (output, read_output), (errors, read_errors) = files
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": _path()},
            )
            output.close()
            errors.close()
        return cls(child, read_output, read_errors)

    def wait(self, timeout: float | None = None) -> bool:
        """Show what it writes until it ends; whether it has ended within the time, seconds.

        Raises:
            KeyboardInterrupt: somebody has interrupted this program; the command has ended in good order.
            RunError: it says what a person can mend.
            RunLost: it ended otherwise than a run ends.
        """
        try:
            ended = self._followed(timeout)
        except KeyboardInterrupt:
            self.child.send_signal(signal.SIGINT)
            self._followed(None)
            raise
        if ended:
            self._judge()
        return ended

    def _followed(self, timeout: float | None) -> bool:
        left = timeout
        while self.child.poll() is None:
            self._show()
            if left is not None and left <= 0:
                return False
            pause = _POLL_SECONDS if left is None else min(_POLL_SECONDS, left)
            try:
                self.child.wait(pause)
            except subprocess.TimeoutExpired:
                left = None if left is None else left - pause
        self._show()
        return True

    def _show(self) -> None:
        print(self.output.read(), end="", flush=True)
        said = self.errors.read()
        self._heard += said.splitlines()
        print(said, end="", file=sys.stderr, flush=True)

    def _judge(self) -> None:
        code = self.child.returncode
        if code in (DONE, FAILED, STOPPED):
            return
        words = [line.removeprefix("fleet: ") for line in self._words()]
        text = "\n".join(words) or f"the command ended with code {code}"
        raise RunError(text) if code == BAD_INPUT else RunLost(text)

    def _words(self) -> list[str]:
        """What fleet itself said of the end, or else the last lines that anybody wrote."""
        begin = next((number for number, line in enumerate(self._heard) if line.startswith("fleet: ")), None)
        return self._heard[begin:] if begin is not None else self._heard[-_TAIL:]


def _path() -> str:
    """Where the command finds the fleet that this program has found, and what else it was told."""
    own = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])


_LOOK_SECONDS = 0.2


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
            time.sleep(_LOOK_SECONDS)
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


_STATUS: Mapping[str, Status] = {"pause": "paused", "stop": "stopped", "done": "done", "fail": "failed"}


@dataclass(frozen=True)
class Suggestion:
    """A trial that a person trains.

    Attributes:
        number: from 0.
        values: dotted path of a job's key -> value.
    """

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Suggesting:
    """A run's search, as its directory tells it.

    Attributes:
        directory: the run's.
        spec: of the run.
        section: its search.
    """

    directory: Path
    spec: EnsembleSpec
    section: SearchSpec

    @classmethod
    def of(cls, directory: Path) -> Suggesting:
        """The search of the run in a directory.

        Raises:
            RunError: there is none.
        """
        known = EnsembleFile.read(directory)
        if known is None:
            raise RunError(f"{directory} holds no run that was started: there is no ensemble.json in it")
        spec = EnsembleSpec.from_mapping(known.spec, folder=Path(known.folder))
        if spec.search is None:
            raise RunError(f"the run in {directory} has no search; add a section `search` to its spec, in another run")
        return cls(directory, spec, spec.search)

    def ask(self, values: Mapping[str, Any] | None, trust: bool) -> Suggestion:
        """Begin a trial; see `Run.ask`."""
        wishes = SearchRequests(self.directory)
        try:
            check_one_metric(self.section.metrics)
        except ValueError as error:
            raise RunError(f"no trial of your own: {error}") from None
        if values is not None:
            self._check(values)
        elif self.section.sampler.name == "grid":
            mend = "give it values of your own: ask({path: value})"
            raise RunError(f"the search has a grid, and tries each of its combinations itself; {mend}")
        elif ":" in self.section.sampler.name:
            try:
                check_trusted(self.directory, trust)
            except ModelsError as error:
                raise RunError(str(error)) from None
        number = wishes.claim()
        given = dict(values) if values is not None else self._suggested(number, wishes.trials())
        wishes.ask(number, given)
        return Suggestion(number, given)

    def tell(self, number: int, value: float | None, failed: bool) -> None:
        """Say what a trial came to; see `Run.tell`."""
        wishes = SearchRequests(self.directory)
        known = {trial.number: trial for trial in wishes.trials()}
        if number not in known:
            there = ", ".join(map(str, known)) or "none"
            raise RunError(f"nobody has asked for a trial {number}; there are: {there}")
        if failed == (value is not None) or (value is not None and not math.isfinite(value)):
            raise RunError(f"a trial has a finite value or has failed, and this one has {value} and failed={failed}")
        told = None if value is None else float(value)
        if known[number].told and known[number].value != told:
            raise RunError(f"trial {number} came to {known[number].value} before, and now to {told}; a result stays")
        wishes.tell(number, told)

    def _check(self, values: Mapping[str, Any]) -> None:
        try:
            check_values(self.section.over, values)
        except ValueError as error:
            raise RunError(f"no values of a trial: {error}") from None

    def _suggested(self, number: int, own: Iterable[OwnTrial]) -> dict[str, Any]:
        """What the sampler suggests, by all results that are known."""
        told, seed = journalled(read_journal(self.directory / "journal.jsonl")), self.section.seed
        sign = -1.0 if told.maximise else 1.0
        try:
            with importable([self.spec.folder, Path.cwd()]):
                sampler = sampler_of(self.section, self.spec.seed if seed is None else seed)
                records = [*_records(told, sign), *(_own_record(trial, sign, self.section.epochs) for trial in own)]
                return dict(sampler.suggest(OWN_TRIALS + number, () if sampler.prefetch is None else records))
        except BadPart as error:
            raise RunError(str(error)) from None


def _records(told: Journalled, sign: float) -> list[Record]:
    """The search's own trials, in the order of their numbers."""
    return [
        Record(
            trial.trial,
            trial.values,
            {epoch: sign * value for epoch, value in trial.results.items() if value is not None},
            _STATUS.get(trial.kind, "suggested"),
        )
        for trial in told.trials.values()
    ]


def _own_record(trial: OwnTrial, sign: float, epochs: int) -> Record:
    losses = {} if trial.value is None else {epochs: sign * trial.value}
    return Record(OWN_TRIALS + trial.number, trial.values, losses, trial.status)
