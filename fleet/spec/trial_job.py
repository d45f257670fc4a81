"""The job of a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fleet.spec.conditions import set_paths
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import Job
from fleet.spec.problem import SpecError
from fleet.spec.trial import trial_keys, trial_origin
from fleet.spec.validation import problems_of


def trial_job(spec: EnsembleSpec, trial: int, values: Mapping[str, Any]) -> Job:
    """The job that a trial of the spec's search is.

    Args:
        spec: one with a search.
        trial: its number, from 0.
        values: dotted path -> its value; the paths are those of `search.over`.

    Raises:
        ValueError: the spec has no search, or the values are of other paths.
        SpecError: the values make no valid job: with all that is wrong.
    """
    search = spec.search
    if search is None:
        raise ValueError(f"the spec {spec.name} has no search, and so no trials")
    wanted = set_paths(search.over, values)
    if values.keys() != wanted:
        raise ValueError(f"trial {trial} has values for {sorted(values)}, and the search varies {sorted(wanted)}")
    try:
        return Job.model_validate(trial_keys(search.name, search.job, trial, values))
    except ValidationError as error:
        inside = dataclasses.replace(spec.origins, jobs=(trial_origin(search.over),))
        raise SpecError(problems_of(error, Job, ("jobs", 0), inside), inside.file) from None
