"""A search's trials: the keys of the job that each of them is."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from fleet.spec.expansion import set_value, with_varied_seeds
from fleet.spec.name_templates import filled
from fleet.spec.origins import JobOrigin
from fleet.spec.problem import Path

NUMBER = "trial"
"""The placeholder of a trial's number in the template of the names."""


def trial_keys(template: str, job: Mapping[str, Any], trial: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a trial's job, not validated.

    Args:
        template: of the trials' names.
        job: what the trials share.
        trial: its number.
        values: dotted path -> its value.
    """
    keys = with_varied_seeds(copy.deepcopy(dict(job)), values)
    for path, value in values.items():
        set_value(keys, path.split("."), copy.deepcopy(value))
    return {**keys, "name": trial_name(template, trial, values)}


def trial_name(template: str, trial: int, values: Mapping[str, Any]) -> str:
    """The name of a trial's job."""
    return filled(template, trial, values, NUMBER)


def trial_origin(paths: Iterable[str]) -> JobOrigin:
    """Where a trial's keys are written, where those at `paths` vary."""
    over: dict[Path, Path] = {tuple(path.split(".")): ("search", "over", path) for path in paths}
    return JobOrigin(("search", "job"), {("name",): ("search", "name"), **over})
