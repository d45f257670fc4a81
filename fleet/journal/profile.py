"""Measured rates on disk: the run's own profile.json, and files that other runs reuse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from preprocess.files.reading import read_json
from preprocess.files.writing import make_folder, write_whole


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
        """This profile with the curves of `later` in place of, or beside, its own."""
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
        """This profile with further rates by fingerprint, of jobs that nobody looks for by name."""
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
    """Samples/s by count.

    Raises:
        ValueError: a count or a rate that cannot be.
    """
    rates = {int(count): float(rate) for count, rate in table.items()}
    for count, rate in rates.items():
        if count < 1 or not 0 < rate < float("inf"):
            raise ValueError(f"a rate of {rate} samples/s with {count}")
    return rates
