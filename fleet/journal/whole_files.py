"""The whole files of a run directory, and how they are written: strict JSON, without secrets.

* ensemble.json, `EnsembleFile`: what a job that is added has to fit, written at each start.
* extended.json, `Extension`: jobs that train longer than the spec of the run's first start says, since `fleet extend`
  asked for it. Every later start takes the jobs' longer `stop` from here, so that its spec can stay as it is.
* profile.json, `RateProfile`: measured rates; other runs reuse such files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from preprocess.files.reading import read_json
from preprocess.files.writing import make_folder, write_whole

ENSEMBLE_NAME = "ensemble.json"


@dataclass(frozen=True)
class EnsembleFile:
    """A run's whole spec and what else decides which jobs can join.

    Attributes:
        folder: in which its modules and relative paths are looked for.
        spec: as `EnsembleSpec.to_mapping` gives it.
        lengths: data key -> samples to train on, and held out; None for those of data that has none.
    """

    folder: str
    spec: Mapping[str, Any]
    lengths: Mapping[str, tuple[int, int | None]]

    def write(self, directory: Path) -> None:
        """Replace the directory's file."""
        write_whole(directory / ENSEMBLE_NAME, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, directory: Path) -> EnsembleFile | None:
        """Return the directory's file; None if there is none that can be read."""
        try:
            content = read_json(directory / ENSEMBLE_NAME)
            lengths = {key: (train, held_out) for key, (train, held_out) in content["lengths"].items()}
            return cls(content["folder"], content["spec"], lengths)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


EXTENSIONS_NAME = "extended.json"


@dataclass(frozen=True)
class Extension:
    """A job's longer training.

    Attributes:
        epochs: after so many epochs it is done.
        only_epochs: its target and its patience count no more.
        before: its `stop` in the spec of the run's first start, all keys written out.
    """

    epochs: int
    only_epochs: bool
    before: Mapping[str, Any]

    @property
    def stop(self) -> dict[str, Any]:
        """The job's `stop` from now on."""
        less: dict[str, Any] = {"target": {}, "patience": None} if self.only_epochs else {}
        return {**self.before, **less, "epochs": self.epochs}

    def of(self, stop: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `stop` that holds where a spec has this one; a third one is left to be refused."""
        return self.stop if dict(stop) == dict(self.before) else dict(stop)


def read_extensions(directory: Path) -> dict[str, Extension]:
    """Return the extensions of a run's jobs, by job.

    Raises:
        OSError: the file is there and cannot be read.
        ValueError: it is damaged.
    """
    try:
        content = read_json(directory / EXTENSIONS_NAME)
    except (FileNotFoundError, NotADirectoryError):  # a directory that cannot be is told where it is made
        return {}
    try:
        return {job: Extension(**told) for job, told in content["jobs"].items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{directory / EXTENSIONS_NAME} is damaged ({error}); take it away, and extend the jobs again"
        ) from error


def write_extensions(directory: Path, extensions: Mapping[str, Extension]) -> None:
    """Replace the directory's file."""
    content = {"jobs": {job: asdict(extension) for job, extension in extensions.items()}}
    write_whole(directory / EXTENSIONS_NAME, json.dumps(content, indent=1))


class ProfileError(ValueError):
    """A profile file cannot be used; the text says why."""


@dataclass(frozen=True)
class RateProfile:
    """Rates in samples/s by job fingerprint and device count, with where and when they were measured.

    A fingerprint stands for all that a rate depends on: model, optimizer, batch size, virtual workers, sample layout,
    device kind. Jobs of other runs with the same fingerprint have the same rate curve.
    """

    where: str = ""
    when: str = ""
    rates: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # fingerprint -> name of the job, for people
    preprocessors: Mapping[int, float] = field(default_factory=dict)  # count -> samples/s

    def measured(self, fingerprint: str) -> dict[int, float]:
        return dict(self.rates.get(fingerprint, {}))

    def updated(self, later: RateProfile) -> RateProfile:
        """Return this profile with the curves of `later` in place of, or beside, its own."""
        if not later.rates:
            return self
        return RateProfile(
            later.where,
            later.when,
            {**self.rates, **later.rates},
            {**self.names, **later.names},
            later.preprocessors or self.preprocessors,
        )

    def with_rates(self, more: Mapping[str, Mapping[int, float]]) -> RateProfile:
        """Return this profile with further rates by fingerprint, of jobs that nobody looks for by name."""
        return replace(self, rates={**self.rates, **more})

    def named(self, job: str) -> dict[int, float]:
        """Rates of the job of this name, for files that people wrote or that were measured on other devices."""
        found = [fingerprint for fingerprint, name in self.names.items() if name == job]
        return self.measured(found[0]) if found else {}

    def by_batch(self, job: str) -> dict[int, float]:
        """Rates on one device by global batch, which such files name `JOB, batch N`."""
        found, start = dict[int, float](), f"{job}, batch "
        for fingerprint, name in self.names.items():
            number = name.removeprefix(start) if name.startswith(start) else ""
            if number.isdecimal() and 1 in (rates := self.measured(fingerprint)):
                found[int(number)] = rates[1]
        return found

    def write(self, path: Path) -> None:
        """Write the profile, whole or not at all.

        Raises:
            ProfileError: it holds what no file of this kind can.
        """
        try:
            text = json.dumps(asdict(self), indent=1)
        except (TypeError, ValueError) as error:
            raise ProfileError(f"{path}: the profile cannot be written ({error})") from error
        make_folder(path.parent)
        write_whole(path, text)

    @classmethod
    def read(cls, path: Path, *parts: Path) -> RateProfile:
        """Read a profile: the file that holds it, or each of the files that hold a part of it.

        Raises:
            ProfileError: one of the files is not there, or is no profile.
        """
        whole = cls._read(path)
        for part in parts:
            whole = whole.updated(cls._read(part))
        return whole

    @classmethod
    def _read(cls, path: Path) -> RateProfile:
        try:
            return cls._of(read_json(path))
        except OSError as error:
            raise ProfileError(f"{path}: {error.strerror}; `fleet profile SPEC --out {path}` makes one") from error
        except (LookupError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise ProfileError(
                f"{path} is not a profile ({error}); `fleet profile SPEC --out FILE` makes one"
            ) from error

    @classmethod
    def _of(cls, content: Mapping[str, Any]) -> RateProfile:
        rates = {key: _rates(curve) for key, curve in content["rates"].items()}
        made = _rates(content.get("preprocessors", {}))
        return cls(content.get("where", ""), content.get("when", ""), rates, dict(content.get("names", {})), made)


def _rates(table: Mapping[str, Any]) -> dict[int, float]:
    """Return samples/s by count.

    Raises:
        ValueError: a count or a rate that cannot be.
    """
    rates = {int(count): float(rate) for count, rate in table.items()}
    for count, rate in rates.items():
        if count < 1 or not 0 < rate < float("inf"):
            raise ValueError(f"a rate of {rate} samples/s with {count}")
    return rates


def strict_json(value: Any, **options: Any) -> str:
    """Return the value as JSON that every reader takes: numbers that are not finite become null.

    Args:
        options: of `json.dumps`.
    """
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


MASK = "***"
_SECRET_WORDS = ("TOKEN", "KEY", "PASSWORD", "PASSWD", "SECRET")
# As long as can be: a password may hold a slash, or an @ itself. A port is no password.
_PASSWORD = re.compile(r"(?<=://)([^:/\s@]*):(?!\d+(?:[/?#]|$))\S*@")
_PARAMETER = re.compile(r"([?&;])([^=&;\s]+)=([^&;#\s]*)")


def is_secret(name: str) -> bool:
    """Return whether the value of a variable of this name is nobody else's to see: WANDB_API_KEY, db-password."""
    return any(part in name.upper() for part in _SECRET_WORDS)


def masked_uri(text: str) -> str:
    """Return a text in which passwords and tokens of all URIs are `***`: http://me:***@host/?token=***."""
    text = _PASSWORD.sub(rf"\1:{MASK}@", text)
    return _PARAMETER.sub(lambda found: f"{found[1]}{found[2]}={MASK}" if is_secret(found[2]) else found[0], text)
