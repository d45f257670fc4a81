"""Trainers that have no network, and prepare samples for others meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lending:
    """How many trainers may prepare samples.

    Attributes:
        preprocessors: ranks that always do.
        most: trainers that may at the same time; 0: none.

    Raises:
        ValueError: no preprocessor, or fewer trainers than none.
    """

    preprocessors: int = 1
    most: int = 0

    def __post_init__(self) -> None:
        if self.preprocessors < 1 or self.most < 0:
            raise ValueError(f"{self}: there is one preprocessor at least, and no fewer than 0 trainers that help")

    def times(self, lent: int) -> float:
        """How many times what preprocessors make alone comes out with so many trainers, each as fast as one of them."""
        return 1 + lent / self.preprocessors


NONE = Lending()
"""No trainer may."""
