"""What people ask of a run that goes on: they leave files in its directory, and rank 0 acts on them.

* `StopRequests`: `fleet stop`. DIR/stop/run.json asks the process that it names, which holds the directory's lock, to
  end the run; rank 0 takes it away when it has seen it. A later start is another process, so an old request is void.
  DIR/stop/jobs/JOB.json stands for as long as the job is to stay stopped, through later starts too.
* `SearchRequests`: DIR/search/changes/000003/change.json asks for other bounds of the search.
  DIR/search/asked/000003/asked.json has the values of a trial that a person trains, and told.json beside it its result.
  Whoever makes the folder has the number. Nothing is taken away: the journal says what rank 0 has taken in, and when in
  virtual time.
* `AddedJobs`: `fleet add`. DIR/added/offered/JOB.json goes to DIR/added/taken/JOB.json, or away, with the reason in
  DIR/added/refused/JOB.txt. Jobs that were taken are part of the run from then on: every later session trains them as
  if the spec named them. DIR/added/verdicts/JOB.json says whether such a deadline is promised, once that is known.
"""

from __future__ import annotations

import getpass
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fleet.journal.lock import NAME, Holder
from fleet.journal.whole_files import strict_json
from preprocess.files.reading import NotAFile, TooLarge, read_json, read_text
from preprocess.files.writing import make_folder, write_whole

SECONDS_BETWEEN_LOOKS = 1.0
_MOST_STOP_BYTES = 1 << 16  # of a request to stop


class StopRequests:
    """The folder `stop` of a run directory.

    Args:
        directory: the run's.
        clock: seconds; files are looked for at most once in so many.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._lock, self._clock = directory / "stop", directory / NAME, clock
        self._looked_for_run = self._looked_for_jobs = -float("inf")
        self._jobs: frozenset[str] = frozenset()

    # what people ask

    def stop_run(self, holder: Holder) -> None:
        """Ask the run that this process leads to end."""
        self._write(self._run, {"holder": asdict(replace(holder, beat=0))})

    def forget_run(self) -> None:
        """Take the request that the run ends back."""
        self._run.unlink(missing_ok=True)

    @property
    def is_open(self) -> bool:
        """Whether rank 0 has not seen the request that the run ends."""
        return self._run.exists()

    def stop_job(self, job: str) -> None:
        """Ask for a job to be stopped, and to stay so."""
        self._write(self._folder / "jobs" / f"{job}.json", {"job": job})

    def take_up(self, job: str) -> None:
        """Ask for a job to go on."""
        (self._folder / "jobs" / f"{job}.json").unlink(missing_ok=True)

    # what rank 0 reads

    def who_stops(self) -> str:
        """Return who asks this process's run to end, once; "": nobody."""
        if self._clock() - self._looked_for_run < SECONDS_BETWEEN_LOOKS:
            return ""
        self._looked_for_run = self._clock()
        own = Holder.read(self._lock)
        try:
            request = read_json(self._run, _MOST_STOP_BYTES)
            if own is None or not own.is_same(Holder(**request["holder"])):
                return ""
            self._run.unlink(missing_ok=True)
            return str(request["by"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def jobs(self) -> frozenset[str]:
        """Return the jobs that are to stay stopped."""
        if self._clock() - self._looked_for_jobs >= SECONDS_BETWEEN_LOOKS:
            self._looked_for_jobs = self._clock()
            with suppress(OSError):  # what was known holds until the folder can be read
                self._jobs = frozenset(path.stem for path in (self._folder / "jobs").glob("[!.]*.json"))
        return self._jobs

    @property
    def _run(self) -> Path:
        return self._folder / "run.json"

    def _write(self, path: Path, content: dict[str, object]) -> None:
        make_folder(path.parent)
        write_whole(path, json.dumps({**content, "by": _who(), "unix": time.time()}))


def _who() -> str:
    """user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


BOUNDS = ("trials", "width", "epochs", "hours")
"""Bounds of a search that may be changed."""
_MOST_BYTES = 4 << 20  # of other requests, a trial's values and a job


@dataclass(frozen=True)
class OwnTrial:
    """A trial that a person trains.

    Attributes:
        number: from 0.
        values: dotted path -> value.
        told: whether it has a result.
        value: of the search's metric; None: it failed, or has no result yet.
    """

    number: int
    values: Mapping[str, Any]
    told: bool = False
    value: float | None = None

    @property
    def status(self) -> Literal["suggested", "done", "failed"]:
        """Whether it has a result, and what that is."""
        return "suggested" if not self.told else "failed" if self.value is None else "done"


class SearchRequests:
    """The folder `search` of a run directory."""

    def __init__(self, directory: Path) -> None:
        self._asked, self._changes = (directory / "search" / each for each in ("asked", "changes"))

    # what people ask

    def change(self, bounds: Mapping[str, int | float]) -> int:
        """Ask for other bounds, some of BOUNDS; return the number of the request."""
        number = _claimed(self._changes)
        _write_into(self._changes / _name(number) / "change.json", dict(bounds))
        return number

    def claim(self) -> int:
        """Claim the number of a trial; nobody else gets it."""
        return _claimed(self._asked)

    def ask(self, number: int, values: Mapping[str, Any]) -> None:
        """Begin the trial of a number that was claimed."""
        _write_into(self._asked / _name(number) / "asked.json", {"values": dict(values)})

    def tell(self, number: int, value: float | None) -> None:
        """Leave a trial's result; None: it failed."""
        _write_into(self._asked / _name(number) / "told.json", {"value": value})

    # what rank 0 reads

    def changes(self) -> dict[int, dict[str, int | float]]:
        """Return all bounds that were asked for, by the number of the request."""
        found = {}
        for folder in _folders(self._changes):
            told = _read(folder / "change.json")
            if told is not None:
                found[int(folder.name)] = {key: told[key] for key in BOUNDS if _is_bound(key, told.get(key))}
        return found

    def trials(self) -> list[OwnTrial]:
        """Return all trials that people train, in the order of their numbers."""
        return [trial for folder in _folders(self._asked) if (trial := _trial(folder)) is not None]


def _trial(folder: Path) -> OwnTrial | None:
    asked, told = _read(folder / "asked.json"), _read(folder / "told.json")
    values = None if asked is None else asked.get("values")
    if not isinstance(values, dict):
        return None
    value = None if told is None else told.get("value")
    known = type(value) in (int, float)
    return OwnTrial(int(folder.name), values, told is not None, float(value) if known and value is not None else None)


def _is_bound(key: str, value: Any) -> bool:
    kinds = (int, float) if key == "hours" else (int,)
    return type(value) in kinds and value > 0


def _name(number: int) -> str:
    return f"{number:06d}"


def _claimed(folder: Path) -> int:
    """Make a folder whose name is the next number, and return that."""
    make_folder(folder)
    number = max((int(each.name) for each in _folders(folder)), default=-1) + 1
    while True:
        try:
            (folder / _name(number)).mkdir()
        except FileExistsError:  # somebody was quicker
            number += 1
        else:
            return number


def _write_into(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, strict_json({**content, "by": _who(), "unix": time.time()}))


def _folders(folder: Path) -> Iterator[Path]:
    return iter(sorted(each for each in folder.glob("[0-9]*") if each.name.isdecimal()))


def _read(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None: it is not there yet, or holds none."""
    try:
        found = read_json(path, _MOST_BYTES)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


JobMapping = Mapping[str, Any]


class AddedJobs:
    """The folder `added` of a run directory; jobs in it are JSON-able mappings with all keys of a spec's job."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "added"

    def offer(self, job: JobMapping) -> None:
        """Leave a job for the run to take in."""
        self._refused(job["name"]).unlink(missing_ok=True)
        self._decision(job["name"]).unlink(missing_ok=True)
        self._write("offered", job)

    def offers(self) -> dict[str, JobMapping | None]:
        """Return the jobs on offer by name; None: the file holds none. A file that cannot be read is left for later."""
        found = {}
        for path in self._paths("offered"):
            with suppress(OSError):
                found[path.stem] = _read_job(path)
        return found

    def take(self, job: JobMapping) -> None:
        """Make a job that was offered part of the run."""
        self._write("taken", job)
        self._offered(job["name"]).unlink(missing_ok=True)

    def take_all(self, jobs: Iterable[JobMapping]) -> None:
        """Make a start's jobs that are still on offer part of the run; see `at_start`."""
        offers = self.offers()
        for job in jobs:
            if job["name"] in offers:
                self.take(job)

    def refuse(self, name: str, why: str) -> None:
        """Say why a job is not taken in."""
        path = self._refused(name)
        make_folder(path.parent)
        write_whole(path, why + "\n")
        self._offered(name).unlink(missing_ok=True)

    def decide(self, name: str, promised: bool, why: str) -> None:
        """Say whether the deadline of a job that was taken is promised, and if not, why."""
        path = self._decision(name)
        make_folder(path.parent)
        write_whole(path, json.dumps({"promised": promised, "why": why}))

    def decision(self, name: str) -> tuple[bool, str] | None:
        """Return whether a job's deadline is promised, and if not, why; None: that is not known yet."""
        try:
            told = read_json(self._decision(name), _MOST_BYTES)
            return bool(told["promised"]), str(told["why"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def undecided(self) -> list[str]:
        """Return the jobs with a deadline that were taken and have no verdict yet."""
        due = [job["name"] for job in self.taken() if job.get("deadline") is not None]
        return [name for name in due if self.decision(name) is None]

    def has(self, job: JobMapping) -> bool:
        """Return whether the very same job was added before; only its arrival may differ."""
        known = (_read_job(self._folder / kind / f"{job['name']}.json") for kind in ("offered", "taken"))
        return any(other is not None and {**other, "arrival": job["arrival"]} == dict(job) for other in known)

    def taken(self) -> list[JobMapping]:
        """Return jobs that are part of the run, in the order in which they came.

        Raises:
            OSError: one cannot be read, and the run is not whole without it.
        """
        jobs = [job for path in self._paths("taken") if (job := _read_job(path)) is not None]
        return sorted(jobs, key=lambda job: (job.get("arrival", 0.0), job["name"]))

    def at_start(self, now: float, acceptable: Callable[[JobMapping], bool]) -> list[JobMapping]:
        """Return the added jobs that a start at second `now` trains: those taken, then `acceptable` offers."""
        taken = self.taken()
        known = {job["name"] for job in taken}
        offered = [job for name, job in self.offers().items() if job is not None and name not in known]
        good = [job for job in offered if acceptable(job)]
        return [*taken, *({**job, "arrival": now + float(job.get("arrival", 0.0))} for job in good)]

    def names(self) -> set[str]:
        """Return names that are taken or on offer."""
        return {path.stem for kind in ("offered", "taken") for path in self._paths(kind)}

    def verdict(self, name: str) -> str | None:
        """Return why an offer was refused; "": it was taken, None: nobody has looked yet."""
        if self._refused(name).exists():
            return read_text(self._refused(name), _MOST_BYTES, errors="replace").strip()
        return None if self._offered(name).exists() else ""

    def _write(self, kind: str, job: JobMapping) -> None:
        path = self._folder / kind / f"{job['name']}.json"
        make_folder(path.parent)
        write_whole(path, json.dumps(job, indent=1))

    def _paths(self, kind: str) -> list[Path]:
        return sorted((self._folder / kind).glob("[!.]*.json"))

    def _offered(self, name: str) -> Path:
        return self._folder / "offered" / f"{name}.json"

    def _decision(self, name: str) -> Path:
        return self._folder / "verdicts" / f"{name}.json"

    def _refused(self, name: str) -> Path:
        return self._folder / "refused" / f"{name}.txt"


def _read_job(path: Path) -> JobMapping | None:
    try:
        job = read_json(path, _MOST_BYTES)
    except (FileNotFoundError, NotAFile, TooLarge, PermissionError, ValueError):
        return None
    good = isinstance(job, dict) and job.get("name") == path.stem and _arrives(job.get("arrival", 0.0))
    return job if good else None


def _arrives(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf
