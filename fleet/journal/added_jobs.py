"""Jobs that are added to a run: `fleet add` leaves them in the run directory, and rank 0 takes them in or refuses them.

DIR/added/offered/JOB.json goes to DIR/added/taken/JOB.json, or away, with the reason in DIR/added/refused/JOB.txt. Jobs
that were taken are part of the run from then on: every later session trains them as if the spec named them. Whether the
deadline of such a job is promised stands in DIR/added/verdicts/JOB.json, once that is known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from preprocess.files.reading import NotAFile, TooLarge, read_json, read_text
from preprocess.files.writing import make_folder, write_whole

_MOST_BYTES = 4 << 20  # of a job, and of what is said of one
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
        """Jobs that nobody has looked at yet, by name; None where the file holds none. One whose file cannot be read
        now is left for the next time.
        """
        found = {}
        for path in self._paths("offered"):
            with suppress(OSError):
                found[path.stem] = _read(path)
        return found

    def take(self, job: JobMapping) -> None:
        """Make a job that was offered part of the run."""
        self._write("taken", job)
        self._offered(job["name"]).unlink(missing_ok=True)

    def take_all(self, jobs: Iterable[JobMapping]) -> None:
        """Make those of a start's jobs that are still on offer part of the run; see `at_start`."""
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
        """Whether a job's deadline is promised, and if not, why; None as long as nobody has said it."""
        try:
            told = read_json(self._decision(name), _MOST_BYTES)
            return bool(told["promised"]), str(told["why"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def undecided(self) -> list[str]:
        """Jobs with a deadline that were taken, and of which nobody has said whether it is promised."""
        due = [job["name"] for job in self.taken() if job.get("deadline") is not None]
        return [name for name in due if self.decision(name) is None]

    def has(self, job: JobMapping) -> bool:
        """Whether the very same job was added before: only its arrival may be another by now."""
        known = (_read(self._folder / kind / f"{job['name']}.json") for kind in ("offered", "taken"))
        return any(other is not None and {**other, "arrival": job["arrival"]} == dict(job) for other in known)

    def taken(self) -> list[JobMapping]:
        """Jobs that are part of the run, in the order in which they came.

        Raises:
            OSError: one cannot be read, and the run is not whole without it.
        """
        jobs = [job for path in self._paths("taken") if (job := _read(path)) is not None]
        return sorted(jobs, key=lambda job: (job.get("arrival", 0.0), job["name"]))

    def at_start(self, now: float, acceptable: Callable[[JobMapping], bool]) -> list[JobMapping]:
        """Jobs that a run trains which starts at its second `now`: those that were taken, then `acceptable` offers."""
        taken = self.taken()
        known = {job["name"] for job in taken}
        offered = [job for name, job in self.offers().items() if job is not None and name not in known]
        good = [job for job in offered if acceptable(job)]
        return [*taken, *({**job, "arrival": now + float(job.get("arrival", 0.0))} for job in good)]

    def names(self) -> set[str]:
        """Names that are taken or on offer."""
        return {path.stem for kind in ("offered", "taken") for path in self._paths(kind)}

    def verdict(self, name: str) -> str | None:
        """What became of an offer: "" if it was taken, the reason if it was refused, None if nobody has looked yet."""
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


def _read(path: Path) -> JobMapping | None:
    try:
        job = read_json(path, _MOST_BYTES)
    except (FileNotFoundError, NotAFile, TooLarge, PermissionError, ValueError):
        return None
    good = isinstance(job, dict) and job.get("name") == path.stem and _arrives(job.get("arrival", 0.0))
    return job if good else None


def _arrives(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf
