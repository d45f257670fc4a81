"""Reads what a tracker of experiments is told of a run from its directory, for as long as the run goes on."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.coordination.job_record import KeptBest, kept_bests
from fleet.journal import events
from fleet.journal.directory import RunDirectory, no_run
from fleet.journal.events import Event
from fleet.journal.journal import identity_of, read_journal
from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import EnsembleFile, read_extensions
from fleet.report.standing import Look, OtherJob, RunningJob, RunStanding
from fleet.report.tracker import Point, Status, StoreError, Told, TrackedEnsemble, TrackedRun, Tracker, TrackingError
from preprocess.files.reading import read_json
from trainers import newest_file

OVER = ("done", "failed", "stopped", "killed")
_HOUR = 3600.0
_OF_RUN: dict[str, Status] = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "killed": "KILLED"}
_OF_JOB: dict[str, Status] = {
    "running": "RUNNING",
    "stopped": "KILLED",
    "pruned": "KILLED",
    "done": "FINISHED",
    "failed": "FAILED",
}


def read_tracked(directory: Path, exported: Sequence[Path] = ()) -> TrackedEnsemble:
    """Read what a tracker is told of the run in a directory, which may go on meanwhile.

    Args:
        exported: folders with files of `fleet export`, or such files; the directory itself is looked at, too.

    Raises:
        TrackingError: it holds no run, or one that has not begun.
    """
    standing = Look(directory).standing(whole=True)  # before the journal: so no end is told before what led to it
    told = list(read_journal(directory / "journal.jsonl"))
    known = EnsembleFile.read(directory)
    if standing is None or not told or known is None:
        raise TrackingError(no_run(directory))
    files = RunDirectory(directory)
    book = _Book(told[0], told[-1])
    for event in told:
        book.take(event)
    kept = kept_bests(directory, told)
    models = exported_models((directory, *exported), str(known.spec["name"]))
    identity = identity_of(directory / "journal.jsonl")
    networks = (
        _network(spec, book, stands, _paths(files, spec["name"], kept, models), standing.state, identity)
        for spec, stands in _with_standing(_jobs(directory, known), standing)
    )
    ensemble = _ensemble(known, book, standing, directory, identity)
    return TrackedEnsemble(ensemble.name, standing.state, ensemble, tuple(networks))


@dataclass
class _Book(events.Observer):
    """Events by what is asked of them; of an epoch that was trained again, the last one."""

    first: events.Event
    last: events.Event
    epochs: dict[str, dict[int, events.Epoch]] = field(default_factory=lambda: defaultdict(dict))
    started: dict[str, events.Event] = field(default_factory=dict)
    ended: dict[str, events.Event] = field(default_factory=dict)
    done: list[events.Done] = field(default_factory=list)
    sessions: list[events.Session] = field(default_factory=list)
    session_ends: list[tuple[int, events.Ended]] = field(default_factory=list)

    def on_epoch(self, event: events.Epoch) -> None:
        self.epochs[event.job][event.epoch] = event

    def on_started(self, event: events.Started) -> None:
        self.started.setdefault(event.job, event)
        self.ended.pop(event.job, None)

    def on_done(self, event: events.Done) -> None:
        self.ended[event.job] = event
        self.done.append(event)

    def on_failed(self, event: events.Failed | events.Halted | events.Pruned) -> None:
        self.ended[event.job] = event

    on_halted = on_pruned = on_failed

    def on_session(self, event: events.Session) -> None:
        self.sessions.append(event)

    def on_ended(self, event: events.Ended) -> None:
        self.session_ends.append((len(self.sessions), event))


def _jobs(directory: Path, known: EnsembleFile) -> Iterator[Mapping[str, Any]]:
    """The entry of each job, all keys written out: those of the spec, and those that were added."""
    extended, seen = read_extensions(directory), set()
    for job in (*known.spec["jobs"], *AddedJobs(directory).taken()):
        if job["name"] not in seen:
            seen.add(job["name"])
            longer = extended.get(job["name"])
            yield job if longer is None else {**job, "stop": longer.of(job["stop"])}


def _with_standing(
    jobs: Iterable[Mapping[str, Any]], standing: RunStanding
) -> Iterator[tuple[Mapping[str, Any], RunningJob | OtherJob | None]]:
    told: tuple[RunningJob | OtherJob, ...] = (*standing.running, *standing.others)
    stands = {job.job: job for job in told}
    return ((job, stands.get(job["name"])) for job in jobs)


def _network(
    spec: Mapping[str, Any],
    book: _Book,
    stands: RunningJob | OtherJob | None,
    paths: Mapping[str, str],
    state: str,
    identity: str,
) -> TrackedRun:
    name = str(spec["name"])
    words = "running" if isinstance(stands, RunningJob) else "waiting" if stands is None else stands.status
    waiting: Status = "KILLED" if state in OVER else "SCHEDULED"
    told = {
        "fleet.status": words,
        "fleet.why": stands.why if isinstance(stands, OtherJob) else "",
        "fleet.epochs": str(0 if stands is None else stands.epochs),
        "fleet.device_hours": "" if stands is None or state not in OVER else f"{stands.held / _HOUR:.6f}",
        "fleet.joules": "" if stands is None or state not in OVER or stands.joules is None else f"{stands.joules:.0f}",
        **paths,
    }
    end = book.ended.get(name) or (book.last if state in OVER and name in book.started else None)
    return TrackedRun(
        name=name,
        job=name,
        identity=identity,
        status=_OF_JOB.get(words, waiting),
        begin=unix_milliseconds(book.started.get(name)),
        end=unix_milliseconds(end),
        parameters=dict(flat(spec)),
        points=tuple(_points(book.epochs.get(name, {}))),
        tags={key: value for key, value in told.items() if value},
    )


def _points(epochs: Mapping[int, events.Epoch]) -> Iterator[Point]:
    """Metrics of each epoch, with the rate and what else a curve may be drawn of, at the network's own step."""
    for number, event in sorted(epochs.items()):
        own = {"epoch": number, "rate": event.rate, "learning_rate": event.learning_rate}
        values = {**own, "devices": len(event.devices), **event.metrics}
        step, when = event.step or number, unix_milliseconds(event) or 0
        yield from (Point(name, float(value), step, when) for name, value in values.items() if value is not None)


def _paths(files: RunDirectory, name: str, kept: Mapping[str, KeptBest], models: Mapping[str, Path]) -> dict[str, str]:
    """Where a network's files are, as tags: they stay where they are."""
    newest, best = newest_file(files.checkpoints(name)), kept.get(name)
    told: dict[str, str] = {}
    if newest is not None:
        told["fleet.checkpoint"] = str(newest.absolute())
    if best is not None:
        told |= {
            "fleet.best.checkpoint": str(best.path.absolute()),
            "fleet.best.epoch": str(best.best.epoch),
            f"fleet.best.{best.best.metric}": repr(best.best.value),
        }
    if name in models:
        told["fleet.model"] = str(models[name])
    return told


def _ensemble(known: EnsembleFile, book: _Book, standing: RunStanding, directory: Path, identity: str) -> TrackedRun:
    session = book.sessions[-1] if book.sessions else events.Session()
    spec = {key: known.spec.get(key) for key in ("seed", "policy", "determinism", "checkpoints", "resources")}
    tags = {
        "fleet.directory": str(directory.absolute()),
        "fleet.status": standing.state,
        "fleet.version": session.fleet,
        "fleet.host": session.host,
        "fleet.spec_hash": session.spec_hash,
        **{f"fleet.networks.{status}": str(count) for status, count in standing.counts.items()},
    }
    over = standing.state in OVER
    return TrackedRun(
        name=str(known.spec["name"]),
        job="",
        identity=identity,
        status=_OF_RUN.get(standing.state, "RUNNING"),
        begin=unix_milliseconds(book.first),
        end=unix_milliseconds(book.last) if over else None,
        parameters=dict(flat(spec)),
        points=tuple(_points_of_all(book)),
        tags={key: value for key, value in tags.items() if value},
    )


def _points_of_all(book: _Book) -> Iterator[Point]:
    """How many networks were done when; the figures of all together at each session's end, by the session's number."""
    done: set[str] = set()
    for event in book.done:
        if event.job not in done:
            done.add(event.job)
            yield Point("networks_done", float(len(done)), len(done), unix_milliseconds(event) or 0)
    for number, ended in book.session_ends:
        values = {f"ensemble.{name}": value for name, value in (ended.ensemble or {}).items()}
        told, when = {**values, "wall_seconds": ended.wall_seconds}, unix_milliseconds(ended) or 0
        yield from (Point(name, value, number, when) for name, value in told.items() if value is not None)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys and texts of a mapping of plain values; what is null or empty is left out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif value is not None and value != "" and value != []:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)


def unix_milliseconds(event: Event | None) -> int | None:
    """When an event was written down, milliseconds since 1970; None: it does not say."""
    return None if event is None or not event.unix else round(1000 * event.unix)


_CARD = ".safetensors.json"


def exported_models(places: Iterable[Path], run: str) -> dict[str, Path]:
    """Job -> its exported weights, the latest if there are several.

    Args:
        places: folders in which files of `fleet export` lie, or such files.
        run: name of the run from which they are.
    """
    found: dict[str, Path] = {}
    for card in sorted(_cards(places), key=lambda path: path.stat().st_mtime):
        try:
            told = read_json(card)
            if told["run"] == run:
                found[str(told["job"])] = card.with_suffix("").absolute()
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _cards(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        cards = place.glob(f"*{_CARD}") if place.is_dir() else [place.with_name(f"{place.name}.json")]
        yield from (card for card in cards if card.is_file() and card.with_suffix("").is_file())


_LOOKS_APART = 4.0  # times what a look takes lie between two, at least: a long journal takes long to read


@dataclass(frozen=True)
class Following:
    """How a run is followed.

    Attributes:
        every: seconds between two looks.
        wait: seconds that the run may need to begin, that its writer may be silent, and that the tracker may fail.
        say: is told on what it waits, once each time.
        clock, sleep: seconds.
    """

    every: float
    wait: float
    say: Callable[[str], object]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep

    def follow(self, read: Callable[[], TrackedEnsemble], tracker: Tracker) -> tuple[TrackedEnsemble, Told]:
        """Tell a tracker what `read` gives until the run is over; return its last state, and how much was new.

        Raises:
            TrackingError: the run has not begun, its writer was silent, or the tracker has failed, for `wait` seconds.
        """
        told, since, doubted = Told(), self.clock(), False
        while True:
            begin = self.clock()
            run, new, doubt = _look(read, tracker)
            told += new
            if run is not None and run.state in OVER:
                return run, told
            if not doubt:
                since = self.clock()
            elif not doubted:
                self.say(f"{doubt}; waiting {self.wait:g} s at most")
            doubted = bool(doubt)
            if doubt and self.clock() - since >= self.wait:
                raise TrackingError(f"{doubt}; it has been so for {self.wait:g} s")
            self.sleep(max(self.every, _LOOKS_APART * (self.clock() - begin)))


def _look(read: Callable[[], TrackedEnsemble], tracker: Tracker) -> tuple[TrackedEnsemble | None, Told, str]:
    """What was read and is told now, how much of it was new, and what may pass or be the end."""
    try:
        run = read()
    except TrackingError as error:  # it has not begun
        return None, Told(), str(error)
    try:
        told = tracker.tell(run)
    except StoreError as error:
        return None, Told(), str(error)
    return run, told, "the run's process says nothing any more" if run.state == "silent" else ""
