"""All policies that have a short name: fleet's own, and those of papers."""

from __future__ import annotations

from fleet.scheduling.policies import BUILT_IN, PAPERS, policy_class

POLICIES = tuple(policy_class(name) for name in (*BUILT_IN, *PAPERS))
NAMES = (*BUILT_IN, *PAPERS)
