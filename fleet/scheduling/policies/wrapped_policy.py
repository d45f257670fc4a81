"""What policies that wrap another one have of it."""

from __future__ import annotations

from fleet.scheduling.model.trigger import Trigger
from fleet.scheduling.policies import Policy


class WrappedPolicy:
    """Goes by the name and the triggers of another policy; `plan` is left to who inherits.

    Args:
        policy: the other one.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def name(self) -> str:
        """As `Policy.name`."""
        return self._policy.name

    @property
    def shares_streams(self) -> bool:
        """As `Policy.shares_streams`."""
        return self._policy.shares_streams

    @property
    def trigger(self) -> Trigger:
        """As `Policy.trigger`."""
        return self._policy.trigger
