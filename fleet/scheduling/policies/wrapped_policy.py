"""What policies that wrap another one have of it."""

from __future__ import annotations

from typing import ClassVar

from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.trigger import Trigger


class WrappedPolicy(Policy):
    """Goes by the name and the triggers of another policy; `plan` is left to who inherits.

    Args:
        policy: the other one.
    """

    knows_kinds: ClassVar[bool] = True  # or the other one was wrapped for them already

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def name(self) -> str:
        """The other one's."""
        return self._policy.name

    @property
    def shares_streams(self) -> bool:
        """As the other one."""
        return self._policy.shares_streams

    @property
    def trigger(self) -> Trigger:
        """As the other one's."""
        return self._policy.trigger
