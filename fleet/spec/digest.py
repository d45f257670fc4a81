"""Whether two specs give the same results: digests and differences of their values, and of the code that they name.

Of code only files count that are the spec's own: in its folder, in the current one, or wherever the module that it
names lies, as long as nobody installed it. Whole files do, so that a comment counts, too.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import pathlib
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import STEP_OPTIONS, SUBSET_KEYS
from fleet.spec.metrics import BUILT_IN, metric_name
from fleet.spec.problem import ABSENT, KeyPath, shown, written
from preprocess.files.reading import read_bytes

_NO_RESULT = frozenset(
    {"deadline", "soft", "user", "priority", "arrival", "guaranteed", "minimum_devices", "service_level"}
)  # of a job: they decide when it trains, not what comes out
_LATER = frozenset({"width", "trials", "budget", "ahead"})  # of a search: they may change as it goes on
_NO_SAMPLE = frozenset({"on_corrupt", "corrupt_limit", "store"})  # of data: they do not change a sample
_LATER_IN_JOBS = (
    *STEP_OPTIONS,
    *SUBSET_KEYS,
    "memory_format",
    "batch",
    "evaluation_batch_size",
    "warm_up",
    "drop_last",
)
"""Keys of jobs that were none when the first runs were made."""


def results_mapping(spec: EnsembleSpec) -> dict[str, Any]:
    """Return what of a spec determines results: its jobs by name, and the data that they use.

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
    if spec.search and not spec.search.stopping.arguments:
        search["stopping"] = {key: value for key, value in search["stopping"].items() if key != "arguments"}
    further = {"determinism": set_to, "search": search}
    return {"data": data, "jobs": jobs} | {key: value for key, value in further.items() if value}


def _counts(key: str, value: Any) -> bool:
    """Return whether a key of a job counts, one of the later ones only where it is asked for."""
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
    """Return what an entry of metrics measures; None where it only declares a direction."""
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

    parts: KeyPath
    first: Any
    second: Any

    @property
    def path(self) -> str:
        """Where it is, as people write it."""
        return written(self.parts)

    def __str__(self) -> str:
        return f"{self.path}: {shown(self.first)} -> {shown(self.second)}"


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return what differs between two specs as mappings, by path; jobs are matched by name.

    Args:
        first: what ``to_mapping`` or ``results_mapping`` gave.
        second: what the same gave for another spec.
    """
    return tuple(_differences(_jobs_by_name(first), _jobs_by_name(second), ()))


def _jobs_by_name(mapping: Mapping[str, Any]) -> dict[str, Any]:
    jobs = mapping.get("jobs")
    named = isinstance(jobs, list) and all(isinstance(job, Mapping) and "name" in job for job in jobs)
    return {**mapping, "jobs": {str(job["name"]): job for job in jobs}} if named and jobs else dict(mapping)


def _differences(first: Any, second: Any, path: KeyPath) -> Iterator[Difference]:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in dict.fromkeys([*first, *second]):
            yield from _differences(first.get(key, ABSENT), second.get(key, ABSENT), path + (key,))
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second)):
            yield from _differences(one, other, path + (index,))
    elif first != second or isinstance(first, bool) != isinstance(second, bool):
        yield Difference(path, first, second)


_OURS = ("fleet", "preprocess", "trainers")
_MOST_BYTES = 64 << 20
_MOST_MODULES = 2000

Code = Mapping[str, Mapping[str, str]]
"""`module:Name` -> file, as it is told -> digest of its bytes."""


def code_of(
    references: Iterable[str], folder: pathlib.Path, further: Sequence[pathlib.Path] = ()
) -> dict[str, dict[str, str]]:
    """The code that these names lead to; those that lead to nothing of the spec's own are left out.

    Args:
        folder: the spec's, from which files are told.
        further: folders in which modules may lie besides.
    """
    reader = _Reader([folder, *further])
    found = {}
    for reference in sorted(set(references)):
        files = {_shown_path(path, folder): reader.digest(path) for path in reader.closure(reference.partition(":")[0])}
        if files:
            found[reference] = files
    return found


def code_changes(before: Code, now: Code) -> dict[str, set[str]]:
    """Return what differs between the code of two times, a sentence each -> the names that lead to it."""
    found: dict[str, set[str]] = {}
    for reference in before.keys() & now.keys():
        old, new = before[reference], now[reference]
        for file in dict.fromkeys([*old, *new]):
            if old.get(file) != new.get(file):
                what = "changed" if file in old and file in new else "is new" if file in new else "is no longer used"
                found.setdefault(f"{file} {what}", set()).add(reference)
    return dict(sorted(found.items()))


def _shown_path(path: str, folder: pathlib.Path) -> str:
    inside = os.path.relpath(path, folder.absolute())
    return path if inside.startswith(os.pardir) else inside


class _Reader:
    """Finds files of modules, each looked into once."""

    def __init__(self, folders: Sequence[pathlib.Path]) -> None:
        self._folders = [str(folder.absolute()) for folder in folders]
        self._digests: dict[str, str] = {}
        self._imports: dict[str, list[str]] = {}

    def digest(self, path: str) -> str:
        """Of a file's bytes."""
        if path not in self._digests:
            try:
                content = read_bytes(path, _MOST_BYTES)
            except OSError as error:
                content = str(error.strerror).encode()
            self._digests[path] = hashlib.blake2b(content, digest_size=16).hexdigest()
        return self._digests[path]

    def closure(self, module: str) -> list[str]:
        """The files of a module and of all that it imports beside it."""
        found: dict[str, None] = {}
        waiting = [module]
        seen = {module}
        while waiting and len(seen) < _MOST_MODULES:
            name = waiting.pop()
            for path, package in self._files(name):
                found[path] = None
                for other in self._imported(path, package):
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
        return sorted(found)

    def _files(self, name: str) -> Iterator[tuple[str, str]]:
        """The files that importing a module runs, each with the package that relative imports in it begin in."""
        parts = name.split(".")
        if parts[0] in _OURS or not all(part.isidentifier() for part in parts):
            return
        spec = self._top(parts[0])
        for number in range(1, len(parts) + 1):
            if spec is None:
                return
            named, places = ".".join(parts[:number]), spec.submodule_search_locations
            if spec.origin and spec.has_location:
                yield spec.origin, named if places is not None else named.rpartition(".")[0]
            if number == len(parts) or places is None:
                return
            spec = PathFinder.find_spec(f"{named}.{parts[number]}", list(places))

    def _top(self, name: str) -> ModuleSpec | None:
        """Return where a module is found as an import would find it; None: nowhere, or it is installed."""
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            found = None
        found = found or PathFinder.find_spec(name, self._folders)
        if found is None:
            return None
        places = [found.origin] if found.origin and found.has_location else list(found.submodule_search_locations or ())
        return None if not places or any(map(_is_installed, places)) else found

    def _imported(self, path: str, package: str) -> list[str]:
        """The modules that a file may import, by their full names."""
        if path not in self._imports:
            self._imports[path] = list(_imports(path, package))
        return self._imports[path]


def _imports(path: str, package: str) -> Iterator[str]:
    if not path.endswith(".py"):
        return
    try:
        tree = ast.parse(read_bytes(path, _MOST_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".") if package else []
            above = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _is_installed(path: str) -> bool:
    libraries = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return path.startswith(libraries) or not {"site-packages", "dist-packages"}.isdisjoint(pathlib.Path(path).parts)
