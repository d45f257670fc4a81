"""What a comparison is told on the command line: policies with parameters, seeds, the shape of the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleet.scheduling.model.cluster import Cluster
from fleet.spec.policies import defaults_of, policy, policy_class
from preprocess.files.modules import importable

_COMMA = re.compile(r",(?![^\[{]*[\]}])")  # not one inside of a list or a mapping


def read_settings(text: str, example: str) -> dict[str, Any]:
    """The values by their names.

    Args:
        example: what a user could have written.

    Raises:
        ValueError: a part is not NAME=VALUE, its value is not YAML, or a name is there twice.
    """
    settings: dict[str, Any] = {}
    for part in _COMMA.split(text):
        name, value = read_setting(part, example)
        if name in settings:
            raise ValueError(f"{text}: {name} is given twice; leave one of them out")
        settings[name] = value
    return settings


def read_setting(text: str, example: str) -> tuple[str, Any]:
    """One name and its value.

    Raises:
        ValueError: as `read_settings`.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals):
        raise ValueError(f"{text!r} is no NAME=VALUE; write it as {example}")
    try:
        return name, _as_number(yaml.safe_load(value))
    except yaml.YAMLError:
        raise ValueError(f"{text!r}: the value is not YAML; put it into quotes") from None


def number(name: str, value: object) -> float:
    """A value that has to be a number.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is a number with too many digits; write it as 1e30") from None


def _as_number(value: Any) -> Any:
    """YAML 1.1 reads 1e6 as text; people mean the number."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


_MOST = 1_000_000
"""Devices beyond which a shape is taken for a slip of the pen."""
_PART = re.compile(r"(?:(\d+)\s*[xX*]\s*)?(\d+)(?:\s*:\s*([A-Za-z][\w.-]*))?")
_WAYS = "NODESxDEVICES, such as 16x8; with kinds 8x4:v100,4x4:p100; or the devices of each node, such as 4,4,2"


def read_cluster(text: str) -> Cluster:
    """The cluster of that shape. Kinds are taken in small letters.

    Raises:
        ValueError: it is no shape, a node has no device, there are too many, or only some nodes have a kind.
    """
    parts = [_part(text, part.strip()) for part in text.split(",")]
    if len({bool(kind) for _, _, kind in parts}) == 2:
        bare = next(f"{nodes}x{devices}" for nodes, devices, kind in parts if not kind)
        raise ValueError(f"cluster {text}: {bare} names no kind of device, but others do; name one for each, or none")
    size = sum(nodes * devices for nodes, devices, _ in parts)
    if size > _MOST:
        raise ValueError(f"cluster {text}: these are {size:,} devices; at most {_MOST:,} can be simulated")
    shape = tuple(devices for nodes, devices, _ in parts for _ in range(nodes))
    kinds = tuple(kind for nodes, _, kind in parts for _ in range(nodes))
    return Cluster(shape, kinds if any(kinds) else ())


def shape_of(cluster: Cluster) -> str:
    """The shape, as `read_cluster` reads it."""
    kinds = cluster.kinds or ("",) * cluster.nodes
    runs: list[tuple[int, int, str]] = []
    for devices, kind in zip(cluster.devices_per_node, kinds):
        if runs and runs[-1][1:] == (devices, kind):
            runs[-1] = (runs[-1][0] + 1, devices, kind)
        else:
            runs.append((1, devices, kind))
    return ",".join(f"{nodes}x{devices}" + (f":{kind}" if kind else "") for nodes, devices, kind in runs)


def _part(text: str, part: str) -> tuple[int, int, str]:
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(f"cluster {text}: {part!r} is no shape of nodes; write {_WAYS}")
    nodes, devices = int(found[1] or 1), int(found[2])
    if nodes < 1 or devices < 1:
        raise ValueError(f"cluster {text}: {part} has no device; a cluster has one node or more, each with a device")
    if nodes > _MOST or devices > _MOST:
        raise ValueError(f"cluster {text}: {part} is more than can be simulated: at most {_MOST:,} devices")
    return nodes, devices, (found[3] or "").lower()


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
    return list(defaults_of(policy_class(name)))


def _check(name: str, parameters: Mapping[str, Any]) -> None:
    """Values that no check of the policy's own would understand, and then those checks."""
    defaults = defaults_of(policy_class(name))
    for parameter, value in parameters.items():
        default = defaults.get(parameter)
        if isinstance(default, bool) != isinstance(value, bool) and isinstance(default, (bool, int, float)):
            kind = "true or false" if isinstance(default, bool) else "a number"
            raise ValueError(f"policy {name}: {parameter} is {value!r}; it must be {kind}")
        if isinstance(default, (int, float)) and not isinstance(value, (int, float)):
            raise ValueError(f"policy {name}: {parameter} is {value!r}; it must be a number")
    policy(name, **parameters)


def _told(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_told, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
