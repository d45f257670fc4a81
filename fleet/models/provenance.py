"""Data and code that changed since a run began: it goes on with what it was trained on, or as somebody accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.journal import events
from fleet.journal.journal import Journal, read_journal
from fleet.models.recorded_spec import references_in
from fleet.report.wording import plural
from fleet.spec import EnsembleSpec, Job
from fleet.spec.digest import code_changes, code_of
from fleet.spec.job import data_key
from fleet.workers.agreement import BadInput
from preprocess import Dataset
from preprocess.making.fingerprints import (
    data_changes,
    file_changes,
    fingerprint,
    fingerprint_files,
    is_whole,
    unproved_changes,
)

_MOST_SHOWN, _MOST_NAMES = 12, 4
_MEND = (
    "put it back, begin another run with --out, or go on with what is there now: --accept-changes, "
    "which the journal keeps"
)


@dataclass(frozen=True)
class Change:
    """Something that is not what networks were trained on.

    Attributes:
        what: a sentence.
        jobs: the networks that were trained on it before -> their epochs then; empty: nobody was.
    """

    what: str
    jobs: Mapping[str, int]

    def __str__(self) -> str:
        names = list(self.jobs)
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"{self.what} ({', '.join(names[:_MOST_NAMES])}{more} trained on what was there)"


@dataclass(frozen=True)
class Fingerprints:
    """What a run notes of its data and its code.

    Attributes:
        data: by data key, see `preprocess.making.fingerprints`.
        code: by `module:Name`, see `fleet.spec.digest`.
        epochs: by job, those that were trained.
    """

    data: dict[str, Any] = field(default_factory=dict)
    code: dict[str, dict[str, str]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, told: Iterable[events.Event]) -> Fingerprints:
        """What a journal says, the newest of each."""
        found = cls()
        for event in told:
            if isinstance(event, events.Fingerprints):
                found.data.update(event.data)
                found.code.update({name: dict(files) for name, files in event.code.items()})
            elif isinstance(event, events.Epoch):
                found.epochs[event.job] = max(found.epochs.get(event.job, 0), event.epoch)
        return found

    def new(self, others: Fingerprints) -> Fingerprints:
        """What of others these do not have, or have otherwise."""
        return Fingerprints(
            {key: told for key, told in others.data.items() if self.data.get(key) != told},
            {key: told for key, told in others.code.items() if self.code.get(key) != told},
        )


@dataclass(frozen=True)
class Found:
    """What a start finds, beside what the journal says.

    Attributes:
        new: is to be written down.
        accepted: changes of what networks were trained on, which somebody accepts.
        notes: what cannot be told for sure.
        named: all names of code that are known.
    """

    new: Fingerprints
    accepted: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()

    def write(self, journal: Journal) -> None:
        """Write it into the journal, if there is anything new."""
        if self.new.data or self.new.code or self.accepted:
            told = tuple(events.Accepted(change.what, dict(change.jobs)) for change in self.accepted)
            journal.write(events.Fingerprints(data=self.new.data, code=self.new.code, accepted=told))


def check_unchanged(
    journal: Path, spec: EnsembleSpec, datasets: Mapping[str, Dataset], accept: bool, ignored: Sequence[Path]
) -> Found:
    """Hold data and code against what the journal says of them.

    Args:
        accept: changes are taken as they are.
        ignored: folders that are no data, such as the run's own.

    Raises:
        BadInput: something is not what a network was trained on; all of that.
    """
    known = Fingerprints.read(read_journal(journal))
    data = {key: fingerprint(each, known.data.get(key), map(str, ignored)) for key, each in datasets.items()}
    now = Fingerprints(data, code_in(spec, list(spec.jobs)))
    changes = [change for change in changes_between(known, now, spec) if change.jobs]
    if changes and not accept:
        raise BadInput(refusal(journal.parent, changes))
    notes = [
        f"data {key}: {text}"
        for key in known.data.keys() & data.keys()
        for text in unproved_changes(known.data[key], data[key])
    ]
    return Found(known.new(now), tuple(changes), tuple(notes), frozenset(now.code))


def refusal(directory: Path, changes: Sequence[Change]) -> str:
    """What is told of changes that nobody accepts."""
    shown = "\n  ".join(map(str, changes[:_MOST_SHOWN]))
    more = f"\n  and {plural(len(changes) - _MOST_SHOWN, 'further change')}" if len(changes) > _MOST_SHOWN else ""
    return f"{directory}: data or code is not what the run was trained on:\n  {shown}{more}\n{_MEND}"


def changes_between(before: Fingerprints, now: Fingerprints, spec: EnsembleSpec) -> Iterator[Change]:
    """What changed, with the networks that were trained on it before."""
    for key in sorted(before.data.keys() & now.data.keys()):
        for text in data_changes(before.data[key], now.data[key]):
            yield Change(f"data {key}: {text}", _trained_on(key, before, spec))
    for text, references in code_changes(before.code, now.code).items():
        users = (job for job in spec.jobs if references & set(references_of(spec, job)))
        yield Change(f"code: {text}", _trained(before, users))


def changes_on_disk(journal: Path, spec: EnsembleSpec) -> list[Change]:
    """What changed of files and code since a run noted them, found without opening any data."""
    before, found = Fingerprints.read(read_journal(journal)), []
    for key, parts in before.data.items():
        for part in parts.values():
            if is_whole(part):
                continue  # only its samples tell
            now = fingerprint_files(part["arguments"], [str(journal.parent.absolute())])
            found += [
                Change(f"data {key}: {text}", _trained_on(key, before, spec))
                for text in file_changes(part, now, ":" in part["source"])
            ]
    found += changes_between(before, Fingerprints(code=code_of(before.code, spec.folder, [Path.cwd()])), spec)
    return [change for change in found if change.jobs]


def _trained_on(key: str, before: Fingerprints, spec: EnsembleSpec) -> dict[str, int]:
    return _trained(before, (job for job in spec.jobs if data_key(job) == key))


def _trained(before: Fingerprints, jobs: Iterable[Job]) -> dict[str, int]:
    return {job.name: before.epochs[job.name] for job in jobs if job.name in before.epochs}


def references_of(spec: EnsembleSpec, job: Job) -> list[str]:
    """The names of code that decides what a network comes to."""
    data = spec.data.get(job.data or "")
    told = None if data is None else data.model_dump(mode="json")
    return sorted({*references_in(job.model_dump(mode="json")), *references_in(told)})


def code_in(spec: EnsembleSpec, jobs: Sequence[Job]) -> dict[str, dict[str, str]]:
    """The code of these jobs of a spec, and of its search."""
    named = {name for job in jobs for name in references_of(spec, job)}
    if spec.search is not None:
        named |= set(references_in(spec.search.model_dump(mode="json")))
    return code_of(named, spec.folder, [Path.cwd()])
