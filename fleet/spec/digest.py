"""Whether two specs give the same results, and what differs if they do not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import OWN_SAMPLES
from fleet.spec.key_rules import STEP_OPTIONS
from fleet.spec.metrics import BUILT_IN, metric_name
from fleet.spec.problem import ABSENT, Path, shown, written

_NO_RESULT = frozenset(
    {"deadline", "soft", "user", "priority", "arrival", "guaranteed", "minimum_devices", "service_level"}
)  # of a job: they decide when it trains, not what comes out
_LATER = frozenset({"width", "trials", "budget", "ahead"})  # of a search: they may change as it goes on
_NO_SAMPLE = frozenset({"on_corrupt", "corrupt_limit", "store"})  # of data: they do not change a sample
_LATER_IN_JOBS = (
    *STEP_OPTIONS, *OWN_SAMPLES, "memory_format", "batch", "evaluation_batch_size", "warm_up", "drop_last",
)  # fmt: skip
"""Keys of jobs that were none when the first runs were made."""


def results_mapping(spec: EnsembleSpec) -> dict[str, Any]:
    """What of a spec determines results: its jobs by name, and the data that they use.

    Names of ensembles, resources, policies, checkpoints, profiles, rehearsals and the order of jobs do not: each job's
    weights are a function of its own keys and data. (``batch_range`` and ``batch`` are kept: a policy chooses in them.)
    Nor does what is to become of corrupt samples: one that was skipped stays so in all sessions of a run. Determinism
    does; its defaults are left out, so that digests stay what they were. A search counts but for its bounds, which may
    change as it goes on.
    """
    values = spec.to_mapping()
    used = {job.data for job in spec.jobs} | ({spec.search.job.get("data")} if spec.search else set())
    jobs = {
        job["name"]: {key: _told(key, value) for key, value in job.items() if _counts(key, value)}
        for job in values["jobs"]
    }
    data = {
        name: {key: value for key, value in section.items() if key not in _NO_SAMPLE}
        for name, section in values["data"].items()
        if name in used
    }
    asked = spec.determinism
    set_to = {"level": asked.level, "instruction_set": asked.pinned_to} if asked.level != "D1" else {}
    set_to |= asked.chosen_float32
    search = {key: value for key, value in (values["search"] or {}).items() if key not in _LATER}
    if spec.search and not spec.search.stopping.is_confident:  # so were all searches once
        search["stopping"] = {key: value for key, value in search["stopping"].items() if key != "confidence"}
    further = {"determinism": set_to, "search": search}
    return {"data": data, "jobs": jobs} | {key: value for key, value in further.items() if value}


def _counts(key: str, value: Any) -> bool:
    """Whether a key of a job counts, one of the later ones only where it is asked for."""
    return key not in _NO_RESULT and not (key in _LATER_IN_JOBS and value is None)


def _told(key: str, value: Any) -> Any:
    """The value of a job's key, without the defaults of keys inside it that came later than itself.

    Which direction of a metric is better changes nothing that is measured.
    """
    if key == "metrics":
        return [entry for each in value if (entry := _measured(each)) is not None]
    if key == "schedule" and value is not None:
        return {inner: told for inner, told in value.items() if (inner, told) != ("each", "step")}
    if key != "batch":
        return value
    return {inner: told for inner, told in value.items() if inner != "growth" or told is not None}


def _measured(entry: Any) -> Any:
    """What an entry of metrics measures; None where it only declares a direction."""
    if isinstance(entry, str):
        return entry
    of = entry["of"] or (entry["name"] if entry["name"] in BUILT_IN else None)
    plain = of is not None and not entry["arguments"] and metric_name(of) == entry["name"]
    return of if plain or of is None else {key: value for key, value in entry.items() if key != "better"}


def spec_hash(spec: EnsembleSpec) -> str:
    """SHA-256 of what determines results, in hexadecimal; the same whatever the order of keys and jobs."""
    text = json.dumps(results_mapping(spec), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Difference:
    """A value that two specs do not share; ABSENT where one has none."""

    parts: Path
    first: Any
    second: Any

    @property
    def path(self) -> str:
        """Where it is, as people write it."""
        return written(self.parts)

    def __str__(self) -> str:
        return f"{self.path}: {shown(self.first)} -> {shown(self.second)}"


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Difference, ...]:
    """What differs between two specs as mappings, by path; jobs are matched by name.

    Args:
        first: what ``to_mapping`` or ``results_mapping`` gave.
        second: what the same gave for another spec.
    """
    return tuple(_differences(_jobs_by_name(first), _jobs_by_name(second), ()))


def _jobs_by_name(mapping: Mapping[str, Any]) -> dict[str, Any]:
    jobs = mapping.get("jobs")
    named = isinstance(jobs, list) and all(isinstance(job, Mapping) and "name" in job for job in jobs)
    return {**mapping, "jobs": {str(job["name"]): job for job in jobs}} if named and jobs else dict(mapping)


def _differences(first: Any, second: Any, path: Path) -> Iterator[Difference]:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys([*first, *second]):
            yield from _differences(first.get(key, ABSENT), second.get(key, ABSENT), path + (key,))
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second)):
            yield from _differences(one, other, path + (index,))
    elif first != second or isinstance(first, bool) != isinstance(second, bool):
        yield Difference(path, first, second)
