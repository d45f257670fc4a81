"""The policy that a spec or a command line names, with modules from the folders that are importable."""

from __future__ import annotations

from typing import Any

from fleet.scheduling.policies import BUILT_IN, PAPERS, Policy, policy, policy_class, reference_of
from fleet.spec.references import ReferenceProblem, resolve


def chosen_class(name: str) -> type[Policy]:
    """The class of the policy of that short name or `module:Name`.

    Raises:
        ReferenceProblem: its module cannot be imported, or has no such name; a ValueError, too.
        ValueError: there is no such policy, or it is not one.
    """
    reference = None if name in BUILT_IN else reference_of(name)
    if reference is not None:
        try:
            resolve(reference)  # later imports of the module find it where this one did
        except ReferenceProblem:
            if name not in PAPERS:
                raise
    return policy_class(name)


def chosen_policy(name: str, **parameters: Any) -> Policy:
    """The policy of that short name or `module:Name`, with these parameters.

    Raises:
        ValueError: as `chosen_class` and `policy` raise it.
    """
    chosen_class(name)
    return policy(name, **parameters)
