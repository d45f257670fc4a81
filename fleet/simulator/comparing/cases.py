"""The cases of a comparison, as they are written on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.scheduling.policies import defaults_of
from fleet.simulator.comparing.settings import read_setting, read_settings
from fleet.spec.policies import chosen_class, chosen_policy
from preprocess.files.modules import importable

_EXAMPLE = "alpha=0.7, or for one policy alone flotilla.alpha=0.7"


@dataclass(frozen=True)
class Case:
    """One simulation of a comparison.

    Attributes:
        policy: its name.
        parameters: those that are not as by default.
        seed: root of the draws of the policy, of jobs and of failures.
    """

    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def label(self) -> str:
        """The policy as a table calls it."""
        return " ".join([self.policy, *(f"{name}={_told(value)}" for name, value in self.parameters.items())])


def cases_of(policies: Sequence[str], settings: Sequence[str], seeds: Sequence[int]) -> tuple[Case, ...]:
    """Each policy with each seed.

    Args:
        policies: `flotilla`, or `flotilla:alpha=0.7,delta=10%`; `module:Name` likewise, in a module that can be
            imported or lies in the current folder.
        settings: `alpha=0.7`, for all of them that have it, or `flotilla.alpha=0.7`.

    Raises:
        ValueError: a policy or parameter is not known, a value breaks its rule, or a case is there twice.
    """
    chosen = [_policy(text) for text in policies]
    with importable([Path.cwd()]):
        for text in settings:
            _set(chosen, text)
        for name, parameters in chosen:
            _check(name, parameters)
    cases = tuple(Case(name, parameters, seed) for name, parameters in chosen for seed in seeds)
    keys = [(case.label, case.seed) for case in cases]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise ValueError(f"policy {twice[0][0]} with seed {twice[0][1]} is asked for twice; leave one out")
    return cases


def _policy(text: str) -> tuple[str, dict[str, Any]]:
    name, colon, rest = text.partition(":")
    first, _, more = rest.partition(":")
    if colon and "=" not in first:  # module:Name
        name, rest = f"{name.strip()}:{first}", more
    given = read_settings(rest, "fifo:backfill=true") if rest or colon and ":" not in name else {}
    return name.strip(), {key: _plain(value) for key, value in given.items()}


def _set(chosen: Sequence[tuple[str, dict[str, Any]]], text: str) -> None:
    """Give a parameter to all the chosen policies that have it, or to those that are named."""
    key, value = read_setting(text, _EXAMPLE)
    owner, dot, name = key.rpartition(".")
    having = [given for policy, given in chosen if (policy == owner if dot else name in _parameters(policy))]
    if not having and dot:
        raise ValueError(f"{text}: {owner} is not among the policies: {', '.join(name for name, _ in chosen)}")
    if not having:
        there = "; ".join(f"{policy}: {', '.join(_parameters(policy)) or 'none'}" for policy, _ in chosen)
        raise ValueError(f"{text}: no policy here has a parameter {name!r}; their parameters are - {there}")
    for given in having:
        given[name] = _plain(value)


def _plain(value: Any) -> Any:
    """Parameters do not change: a list is a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _parameters(name: str) -> list[str]:
    return list(defaults_of(chosen_class(name)))


def _check(name: str, parameters: Mapping[str, Any]) -> None:
    """Values that no check of the policy's own would understand, and then those checks."""
    defaults = defaults_of(chosen_class(name))
    for parameter, value in parameters.items():
        default = defaults.get(parameter)
        if isinstance(default, bool) != isinstance(value, bool) and isinstance(default, (bool, int, float)):
            kind = "true or false" if isinstance(default, bool) else "a number"
            raise ValueError(f"policy {name}: {parameter} is {value!r}; it must be {kind}")
        if isinstance(default, (int, float)) and not isinstance(value, (int, float)):
            raise ValueError(f"policy {name}: {parameter} is {value!r}; it must be a number")
    chosen_policy(name, **parameters)


def _told(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_told, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
