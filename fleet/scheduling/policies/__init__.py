"""Policies: pure functions from a state to a plan, chosen by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Protocol

from fleet.scheduling.easyscale.companions import executors_on
from fleet.scheduling.model.nearest import nearest
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import State
from fleet.scheduling.model.trigger import Trigger
from fleet.scheduling.policies.baseline import Baseline
from fleet.scheduling.policies.chronus import Chronus
from fleet.scheduling.policies.deadline import Deadline
from fleet.scheduling.policies.easyscale import EasyScale
from fleet.scheduling.policies.edf import Edf
from fleet.scheduling.policies.edf_admission import EdfAdmission
from fleet.scheduling.policies.elasticflow import ElasticFlow
from fleet.scheduling.policies.elasticflow_slot import ElasticFlowSlot
from fleet.scheduling.policies.fifo import Fifo
from fleet.scheduling.policies.flotilla import Flotilla
from fleet.scheduling.policies.gandiva import Gandiva
from fleet.scheduling.policies.gavel import Gavel
from fleet.scheduling.policies.goodput import Goodput
from fleet.scheduling.policies.homogeneous import Homogeneous
from fleet.scheduling.policies.local import Local
from fleet.scheduling.policies.malleable import Malleable
from fleet.scheduling.policies.optimus import Optimus
from fleet.scheduling.policies.pollux import Pollux
from fleet.scheduling.policies.sharing import Sharing
from fleet.scheduling.policies.sia import Sia
from fleet.scheduling.policies.themis import Themis
from fleet.scheduling.policies.throughput import Throughput
from fleet.scheduling.policies.tiresias import Tiresias

__all__ = [
    "POLICIES",
    "Baseline",
    "Fifo",
    "Flotilla",
    "Homogeneous",
    "Local",
    "Policy",
    "breaks_minimum",
    "breaks_service_level",
    "chooses_batches",
    "most_executors",
    "policy",
]

POLICIES = (
    Flotilla,
    Local,
    Homogeneous,
    Baseline,
    Fifo,
    Tiresias,
    Throughput,
    Gandiva,
    Gavel,
    Goodput,
    EasyScale,
    Deadline,
    Malleable,
    Pollux,
    Sia,
    Edf,
    EdfAdmission,
    Optimus,
    Themis,
    Chronus,
    ElasticFlow,
    ElasticFlowSlot,
    Sharing,
)


class Policy(Protocol):
    """What decides who trains where."""

    @property
    def name(self) -> str:
        """The word by which specs call it."""
        ...

    @property
    def shares_streams(self) -> bool:
        """Whether jobs at the same place of the same data read the same samples."""
        ...

    @property
    def trigger(self) -> Trigger:
        """When the driver asks."""
        ...

    def plan(self, state: State) -> Plan:
        """What should run from now on; the same answer for the same state.

        A running job that should go on appears with the devices that it has. One that is absent, or has other devices,
        should stop; a driver that cannot move it at once asks again once it has stopped.
        """
        ...


def policy(name: str, **parameters: Any) -> Policy:
    """The policy of that name with these parameters.

    Raises:
        ValueError: there is no such policy or parameter, or a value breaks the parameter's rule.
    """
    known = {kind.name: kind for kind in POLICIES}
    if name not in known:
        raise ValueError(f"there is no policy {name!r}{_meant(name, known)}; there are {', '.join(known)}")
    kind = known[name]
    defaults = {field.name: field.default for field in fields(kind)}
    for parameter in parameters:
        if parameter not in defaults:
            has = ", ".join(f"{key} (default {value!r})" for key, value in defaults.items()) or "none"
            raise ValueError(
                f"policy {name} has no parameter {parameter!r}{_meant(parameter, defaults)}; its parameters: {has}"
            )
    try:
        return kind(**parameters)
    except ValueError as error:
        raise ValueError(f"policy {name}: {error}") from None


def chooses_batches(policy: Policy) -> bool:
    """Whether it chooses the batches of jobs that have a range of them and are known by their rate curves alone."""
    return isinstance(policy, Throughput) and policy.batch != "fixed"


def most_executors(policy: Policy) -> int:
    """The most trainers of a job that it may have on an accelerator that these share; 1 where it does not choose."""
    return executors_on(policy, "") if isinstance(policy, EasyScale) else 1


def weighs_data_path(policy: Policy) -> bool:
    """Whether it minds what all jobs together ask of the preprocessors."""
    return any(each.weighs_data_path for each in POLICIES if each.name == policy.name)


def breaks_minimum(name: str) -> str | None:
    """Why a policy cannot be asked for `minimum_devices` of a job; None: it keeps to them."""
    keeping = [each.name for each in POLICIES if each.keeps_minimum]
    if name in keeping:
        return None
    return f"policy {name} gives a job any number of devices from 1 on; {_listed(keeping)} keep to minimum_devices"


def breaks_service_level(name: str) -> str | None:
    """Why a policy cannot be asked for a job's `service_level`; None: it holds them."""
    holding = [each.name for each in POLICIES if each.keeps_service_levels]
    if name in holding:
        return None
    return f"policy {name} promises no job a part of the devices; {_listed(holding)} does"


def _listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _meant(word: str, known: dict[str, Any]) -> str:
    close = nearest(word, known)
    return f" (did you mean {close!r}?)" if close else ""
