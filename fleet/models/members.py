"""The networks of a run: how good each was after each of its epochs, and which of its checkpoints are there."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from fleet.coordination.job_record import KeptBest, kept_bests
from fleet.journal.directory import RunDirectory
from fleet.journal.events import Epoch
from fleet.journal.journal import read_journal
from fleet.journal.metric_order import Comparing, MetricOrder, Undeclared
from fleet.models.errors import ModelsError
from fleet.models.recorded_spec import recorded_job, recorded_spec
from fleet.report.run_history import RunHistory, build_history
from fleet.spec import EnsembleSpec, Job
from trainers import CheckpointError, newest_file, read
from trainers.state.checkpoint import outline
from trainers.state.history import Direction
from trainers.state.kept_checkpoints import best_file


@dataclass(frozen=True)
class BestValue:
    """The value of a metric by which a network counts, and after which epoch it was measured, from 1."""

    value: float
    epoch: int


@dataclass(frozen=True)
class Member:
    """A network of a run.

    Attributes:
        job: its entry in the spec.
        status: done, failed, running, stopped or pending.
        history: epoch, from 1 -> its metrics.
        kept: the best checkpoint, as the journal tells it; None: none is kept.
        newest: its newest checkpoint; None: it has none.
        folder: where its checkpoints lie.
        device_seconds: its groups held devices so long, all together.
        better: metric -> whether more or less of it is better, `higher` or `lower`.
    """

    job: Job
    status: str
    history: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    kept: KeptBest | None = None
    newest: Path | None = None
    folder: Path = Path()
    device_seconds: float = 0.0
    better: Mapping[str, Direction] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.job.name

    def best(self, order: MetricOrder) -> BestValue | None:
        """The value by which it counts; None: it was never measured."""
        epochs = sorted(self.history)
        found = order.value([self.history[epoch].get(order.metric) for epoch in epochs])
        return None if found is None else BestValue(found[0], epochs[found[1]])

    def checkpoint_of(self, epoch: int) -> Path | None:
        """Return the path of the checkpoint of the end of an epoch, from 1; None: it is not there any more."""
        kept = best_file(self.folder, epoch)
        return next((path for path in (kept, self.folder / kept.name) if path.is_file()), None)

    def checkpoint(self, which: str = "best") -> Path:
        """Return the path of the best checkpoint that is kept, or of the last one; the best: the last if none is kept.

        Raises:
            ModelsError: there is none.
        """
        found = self.kept.path if which == "best" and self.kept is not None else self.newest
        if found is None:
            why = "has no checkpoint yet: let the run train it first"
            if self.history:
                why = "was stopped, and its checkpoints were not kept: let another run have `checkpoints.keep` of 1"
            raise ModelsError(f"job {self.name} {why}")
        return found

    def at(self, path: Path) -> Member:
        """Return the member with this checkpoint alone."""
        return replace(self, kept=None, newest=path)


@dataclass(frozen=True)
class Members:
    """The networks of a run directory, in the order of its spec."""

    directory: Path
    spec: EnsembleSpec
    all: tuple[Member, ...]
    comparing: Comparing = field(default_factory=Comparing)

    def of(self, name: str) -> Member:
        """Return the network of this name. ModelsError if there is none."""
        job = recorded_job(self.spec, self.directory, name)
        return next(member for member in self.all if member.name == job.name)

    @property
    def metric(self) -> str:
        """By which networks are compared if nobody names a metric.

        That of the search, else the one whose best checkpoint the run keeps, else the one at which its networks stop,
        else accuracy, else the loss on held-out samples, else the loss.
        """
        measured = {name for member in self.all for metrics in member.history.values() for name in metrics}
        best = self.spec.checkpoints.best  # which journals did not tell once
        asked = best if best in measured and self.comparing.by is None and self.comparing.searched is None else None
        return asked or self.comparing.metric(measured) or min(measured, default="loss")

    def order(self, metric: str | None = None, better: str | None = None) -> MetricOrder:
        """Return the order of the networks by a metric; None: by that by which they are compared.

        Raises:
            ModelsError: no network has it, or nobody declares whether more or less of it is better.
        """
        names = sorted({name for member in self.all for metrics in member.history.values() for name in metrics})
        wanted = metric or self.metric
        if wanted not in names:
            has = f"they have {', '.join(names)}" if names else "none has finished an epoch"
            raise ModelsError(f"no network of {self.directory} has a metric {wanted}; {has}")
        try:
            return self.comparing.order(wanted, better)
        except Undeclared as error:
            raise ModelsError(str(error)) from error

    def ranked(self, order: MetricOrder | None = None) -> list[tuple[Member, BestValue]]:
        """Return the networks that have the metric, with the value by which each counts: the best first.

        Equal ones stand as in the spec. Networks that failed come last, with what they had reached.

        Raises:
            ModelsError: no network has it, or nobody declares its direction.
        """
        by = order or self.order()
        found = {member.name: best for member in self.all if (best := member.best(by)) is not None}
        known = [member for member in self.all if member.name in found]
        ranked = by.ranked(known, lambda member: found[member.name].value)
        return [(member, found[member.name]) for member in sorted(ranked, key=lambda one: one.status == "failed")]

    def chosen(self, members: str | Iterable[str]) -> list[Member]:
        """Return the networks that are meant: `all` that have a checkpoint, `best:5`, or those with these names.

        Raises:
            ModelsError: there are none, or the text is another one.
        """
        if not isinstance(members, str):
            return _some([self.of(name) for name in members], self.directory)
        if members == "all":
            return _some([member for member in self.all if _is_usable(member)], self.directory)
        kind, colon, count = members.partition(":")
        if colon and kind == "best" and count.isdecimal() and int(count) > 0:
            ranked = [member for member, _ in self.ranked() if _is_usable(member)]
            return _some(ranked[: int(count)], self.directory)
        return _some([self.of(name) for name in members.split(",") if name], self.directory)


def read_members(directory: Path) -> Members:
    """Read which networks a run directory has; nothing is written there, and the run may go on meanwhile.

    Raises:
        ModelsError: the folder holds no run.
        SpecError: its spec cannot be read.
    """
    spec, files = recorded_spec(directory), RunDirectory(directory)
    told = list(read_journal(files.journal))
    history = build_history(told)
    seconds = _device_seconds(history)
    epochs: dict[str, dict[int, Mapping[str, float]]] = {job.name: {} for job in spec.jobs}
    for event in told:
        if isinstance(event, Epoch) and event.job in epochs:
            epochs[event.job][event.epoch] = event.metrics
    kept, comparing = kept_bests(directory, told), history.comparing
    members = []
    for job in spec.jobs:
        folder, outcome = files.checkpoints(job.name), history.jobs.get(job.name)
        newest = newest_file(folder)
        values = _whole(epochs[job.name], newest)
        status = "pending" if outcome is None else outcome.status
        held, better = seconds.get(job.name, 0.0), cast("dict[str, Direction]", comparing.of_network(job.name))
        members.append(Member(job, status, values, kept.get(job.name), newest, folder, held, better))
    return Members(directory, spec, tuple(members), comparing)


def _device_seconds(history: RunHistory) -> dict[str, float]:
    """Job -> seconds that its groups held devices, all together."""
    seconds: dict[str, float] = defaultdict(float)
    for span in history.spans:
        seconds[span.job] += span.seconds
    return seconds


def _whole(epochs: Mapping[int, Mapping[str, float]], newest: Path | None) -> Mapping[int, Mapping[str, float]]:
    """The epochs that the journal has, with those that it had no time to tell, by the newest checkpoint."""
    finished = (epoch_of(newest) or 0) if newest is not None else 0
    if newest is None or epochs.keys() >= set(range(1, finished + 1)):
        return epochs
    try:
        saved = read(newest).history
        return {**dict(enumerate(saved, saved.dropped + 1)), **epochs}
    except CheckpointError:
        return epochs


def _is_usable(member: Member) -> bool:
    return member.status != "failed" and member.newest is not None


def _some(found: Sequence[Member], directory: Path) -> list[Member]:
    lacking = [member.name for member in found if member.newest is None]
    if lacking:
        raise ModelsError(f"{', '.join(lacking)} of {directory}: no checkpoint yet; let the run train them first")
    if not found:
        raise ModelsError(f"{directory}: no network has a checkpoint yet; let the run train first")
    return list(found)


_PARAMETERS = "/parameters/"


def parameter_count(path: Path) -> int | None:
    """Return how many numbers a checkpoint's parameters have, all together; None if it cannot be read."""
    try:
        arrays = outline(path).arrays
    except CheckpointError:
        return None
    return sum(math.prod(place.shape) for name, place in arrays.items() if name.startswith(_PARAMETERS))


def content_digest(path: Path) -> str | None:
    """Return the digest of a checkpoint's content, blake2b in hexadecimal; None if it cannot be read."""
    try:
        return outline(path).digest or None
    except CheckpointError:
        return None


def epoch_of(path: Path) -> int | None:
    """Return after how many finished epochs a checkpoint was written, by its name; None: the name says nothing."""
    words = path.stem.split("-")
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None
