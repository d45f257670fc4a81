"""Trials that people train beside a run's search: suggested by its sampler, told to it through the run directory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.journal.journal import read_journal
from fleet.journal.run_requests import OwnTrial, SearchRequests
from fleet.journal.whole_files import EnsembleFile
from fleet.models.errors import HarvestError
from fleet.models.program_errors import RunError
from fleet.models.recorded_spec import check_trusted
from fleet.search import OWN_TRIALS, Record, Status
from fleet.search.journalled import Journalled, journalled
from fleet.search.samplers import sampler_of
from fleet.search.space import check_one_metric, check_values
from fleet.spec import EnsembleSpec, SearchSpec, importable
from fleet.spec.plugins import BadPart

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
            except HarvestError as error:
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
