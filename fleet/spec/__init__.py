"""The ensemble spec: YAML or plain values -> validated, frozen objects, with every problem in one report.

    spec = load("ensemble.yaml", overrides=["resources.trainers=2"])     # SpecError: everything wrong with its form
    problems = check(spec)                                               # what takes imports to know
    task = SpecTask(spec.jobs[0], spec.data[spec.jobs[0].data])          # what a trainer trains

Reading a spec does not load torch; ``SpecTask`` and the names beside it do so when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fleet.spec.data import Data, Normalise, Source
from fleet.spec.digest import difference, results_mapping, spec_hash
from fleet.spec.ensemble import EnsembleSpec, load, load_jobs, loads
from fleet.spec.job import Job, Stop
from fleet.spec.problem import ABSENT, Problem, SpecError
from fleet.spec.references import ReferenceProblem, importable, resolve
from fleet.spec.search import SearchSpec
from fleet.spec.semantics import check
from fleet.spec.trials import trial_job
from fleet.spec.values import Named

if TYPE_CHECKING:
    from fleet.spec.inputs import InputPreparation
    from fleet.spec.task import SpecTask

__all__ = [
    "ABSENT",
    "Data",
    "EnsembleSpec",
    "InputPreparation",
    "Job",
    "Named",
    "Normalise",
    "Problem",
    "ReferenceProblem",
    "SearchSpec",
    "Source",
    "SpecError",
    "SpecTask",
    "Stop",
    "check",
    "difference",
    "importable",
    "load",
    "load_jobs",
    "loads",
    "resolve",
    "results_mapping",
    "spec_hash",
    "trial_job",
]

_LOADS_TORCH = {"SpecTask": "fleet.spec.task", "InputPreparation": "fleet.spec.inputs"}


def __getattr__(name: str) -> Any:
    if name not in _LOADS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LOADS_TORCH[name]), name)
