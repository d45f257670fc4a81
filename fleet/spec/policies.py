"""Policies by name: fleet's own, those of papers, installed packages' and any class that is named `module:Name`."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Parameter, signature
from typing import Any

from fleet.scheduling import Policy
from fleet.spec.plugins import PAPERS, POLICIES, BadPart
from fleet.spec.problem import nearest


def policy_class(name: str) -> type[Policy]:
    """The class of a policy, by its short name or as `module:Name`; its module is imported.

    Raises:
        BadPart: there is no such policy, or it is not one; a ValueError, too.
    """
    try:
        found: type[Policy] = POLICIES.load(name)
    except BadPart as error:
        if name in PAPERS and "no module 'benchmarks" in str(error):
            where = "fleet's repository, in benchmarks/papers, and not in the installed package"
            raise ValueError(f"policy {name} is in {where}; run this where the folder benchmarks is") from None
        raise
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


def own_policies() -> tuple[str, ...]:
    """Short names of the policies that fleet's package has."""
    return tuple(name for name in POLICIES.built_in if name not in PAPERS)


def breaks_minimum(name: str) -> str | None:
    """Why a policy cannot be asked for `minimum_devices` of a job; None: it keeps to them."""
    if policy_class(name).keeps_minimum:
        return None
    keeping = [each for each in own_policies() if policy_class(each).keeps_minimum]
    return f"policy {name} gives a job any number of devices from 1 on; {_listed(keeping)} keep to minimum_devices"


def breaks_service_level(name: str) -> str | None:
    """Why a policy cannot be asked for a job's `service_level`; None: it holds them."""
    if policy_class(name).keeps_service_levels:
        return None
    holding = [each for each in own_policies() if policy_class(each).keeps_service_levels]
    return f"policy {name} promises no job a part of the devices; {_listed(holding)} does"


def _listed(names: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _meant(word: str, known: Iterable[str]) -> str:
    close = nearest(word, known)
    return f" (did you mean {close!r}?)" if close else ""
