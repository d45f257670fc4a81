"""Policies by name: fleet's own, those of papers, installed packages' and any class that is named `module:Name`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, isabstract, signature
from typing import Any

from fleet.scheduling.model.nearest import nearest
from fleet.scheduling.model.policy import Policy

__all__ = [
    "BUILT_IN",
    "PAPERS",
    "Policy",
    "breaks_minimum",
    "breaks_service_level",
    "built_in_policies",
    "defaults_of",
    "policy",
    "policy_class",
    "reference_of",
]

BUILT_IN: Mapping[str, str] = {
    "flotilla": "fleet.scheduling.policies.flotilla:Flotilla",
    "local": "fleet.scheduling.policies.flotilla:Local",
    "homogeneous": "fleet.scheduling.policies.flotilla:Homogeneous",
    "baseline": "fleet.scheduling.policies.flotilla:Baseline",
    "fifo": "fleet.scheduling.policies.fifo:Fifo",
    "throughput": "fleet.scheduling.policies.throughput:Throughput",
    "goodput": "fleet.scheduling.policies.goodput:Goodput",
    "easyscale": "fleet.scheduling.policies.easyscale:EasyScale",
    "deadline": "fleet.scheduling.policies.deadline:Deadline",
    "malleable": "fleet.scheduling.policies.malleable:Malleable",
    "elasticflow": "fleet.scheduling.policies.elasticflow:ElasticFlow",
    "sharing": "fleet.scheduling.policies.sharing:Sharing",
}
"""Name -> where the class is; a module is loaded once its policy is asked for."""
PAPERS: Mapping[str, str] = {
    "tiresias": "benchmarks.papers.tiresias:Tiresias",
    "gandiva": "benchmarks.papers.gandiva:Gandiva",
    "gavel": "benchmarks.papers.gavel:Gavel",
    "pollux": "benchmarks.papers.pollux:Pollux",
    "sia": "benchmarks.papers.sia:Sia",
    "edf": "benchmarks.papers.edf:Edf",
    "edf-admission": "benchmarks.papers.edf:EdfAdmission",
    "optimus": "benchmarks.papers.optimus:Optimus",
    "themis": "benchmarks.papers.themis:Themis",
    "chronus": "benchmarks.papers.chronus:Chronus",
    "elasticflow-slot": "benchmarks.papers.elasticflow_slot:ElasticFlowSlot",
}
"""Short names of other people's schedulers, which are in fleet's repository and not in its package."""
ENTRY_POINTS = "fleet.policies"
"""The group in which an installed package names its policies."""


def reference_of(name: str) -> str | None:
    """`module:Name` of a policy, which may be a short name of it; None: there is none of that name."""
    known = BUILT_IN.get(name) or PAPERS.get(name)
    if known is None and ":" in name:
        return name
    return known or next((point.value for point in entry_points(group=ENTRY_POINTS) if point.name == name), None)


def policy_class(name: str) -> type[Policy]:
    """The class of a policy, by its short name or as `module:Name`; its module is imported.

    Raises:
        ValueError: there is no such policy, or it is not one.
    """
    reference = reference_of(name)
    if reference is None:
        known = [*BUILT_IN, *PAPERS]
        there = f"{', '.join(BUILT_IN)}, or your own: module:Name"
        raise ValueError(f"there is no policy {name!r}{_meant(name, known)}; there are {there}")
    module, _, path = reference.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        if name in PAPERS and (error.name or "").split(".")[0] == "benchmarks":
            where = "fleet's repository, in benchmarks/papers, and not in the installed package"
            raise ValueError(f"policy {name} is in {where}; run this where the folder benchmarks is") from None
        raise ValueError(f"policy {name}: there is no module {error.name!r}") from None
    except AttributeError:
        raise ValueError(f"policy {name}: {module} has no {path!r}{_meant(path, dir(found))}") from None
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ValueError(f"{name} is not a policy; let it be a class that inherits from fleet.scheduling.Policy")
    if isabstract(found):
        raise ValueError(f"policy {name} has no method plan; add `def plan(self, state: State) -> Plan` to it")
    return found


def policy(name: str, **parameters: Any) -> Policy:
    """The policy of that name with these parameters.

    Raises:
        ValueError: there is no such policy or parameter, or a value breaks the parameter's rule.
    """
    kind = policy_class(name)
    defaults = defaults_of(kind)
    for parameter in parameters:
        if parameter not in defaults:
            has = ", ".join(f"{key} (default {value!r})" for key, value in defaults.items()) or "none"
            raise ValueError(
                f"policy {name} has no parameter {parameter!r}{_meant(parameter, defaults)}; its parameters: {has}"
            )
    try:
        return kind(**parameters)
    except (TypeError, ValueError) as error:
        raise ValueError(f"policy {name}: {error}") from None


def defaults_of(kind: type[Policy]) -> dict[str, Any]:
    """Parameter -> its default, in their order; `Parameter.empty` where there is none."""
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {each.name: each.default for each in signature(kind).parameters.values() if each.kind in named}


def built_in_policies() -> tuple[type[Policy], ...]:
    """All that fleet has itself; every module of theirs is loaded."""
    return tuple(map(policy_class, BUILT_IN))


def breaks_minimum(name: str) -> str | None:
    """Why a policy cannot be asked for `minimum_devices` of a job; None: it keeps to them."""
    if policy_class(name).keeps_minimum:
        return None
    keeping = [each for each in BUILT_IN if policy_class(each).keeps_minimum]
    return f"policy {name} gives a job any number of devices from 1 on; {_listed(keeping)} keep to minimum_devices"


def breaks_service_level(name: str) -> str | None:
    """Why a policy cannot be asked for a job's `service_level`; None: it holds them."""
    if policy_class(name).keeps_service_levels:
        return None
    holding = [each for each in BUILT_IN if policy_class(each).keeps_service_levels]
    return f"policy {name} promises no job a part of the devices; {_listed(holding)} does"


def _listed(names: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _meant(word: str, known: Iterable[str]) -> str:
    close = nearest(word, known)
    return f" (did you mean {close!r}?)" if close else ""
