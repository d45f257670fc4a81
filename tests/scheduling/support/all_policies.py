"""All policies that have a short name: fleet's own, and those of papers."""

from __future__ import annotations

from fleet.spec import plugins
from fleet.spec.policies import policy_class

POLICIES = tuple(policy_class(name) for name in plugins.POLICIES.built_in)
NAMES = tuple(plugins.POLICIES.built_in)
