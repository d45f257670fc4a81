"""What people change in a search that goes on."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.search.record import Record


@dataclass(frozen=True)
class Change:
    """New bounds of a search from a virtual time on; what is None stays.

    It comes after all events of its time, and before any later one, so what was decided by then stays decided.

    Attributes:
        time: virtual.
        width: virtual slots; where there are fewer, segments under way are not cut short.
        trials: how many trials there may be in all.
        planned: how many trials the rule reckons with from then on, where that is not `trials`; see `Search`.
        epochs: how many epochs all trials together may train.
        over: whether the search ends then, with whatever is under way; False: one that ended so goes on.
        own: how a trial that a person trains stands from then on; its number is `OWN_TRIALS` or more.

    Raises:
        ValueError: a number that cannot be.
    """

    time: int
    width: int | None = None
    trials: int | None = None
    epochs: int | None = None
    over: bool | None = None
    own: Record | None = None
    planned: int | None = None

    def __post_init__(self) -> None:
        for name in ("width", "trials", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.time < 0:
            raise ValueError(f"time is {self.time}; virtual time begins at 0")
