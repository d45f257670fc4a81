"""Who predicts: one process, or ranks that share the samples out; the answers are the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from fleet.models.errors import HarvestError
from fleet.models.load import Ensemble
from fleet.models.predictions import BATCH, Predictions, predict
from fleet.session.held_out import HeldOut
from fleet.spec import ReferenceProblem, SpecError
from preprocess import SourceError
from preprocess.samples.errors import CorruptLimitError, SampleError, TransformError
from trainers import CheckpointError

T = TypeVar("T")
MENDABLE: tuple[type[Exception], ...] = (
    HarvestError, SpecError, ReferenceProblem, CheckpointError, SourceError, TransformError, SampleError,
    CorruptLimitError,
)  # fmt: skip
"""What a person can mend where networks predict."""


class Team(Protocol):
    """Processes that predict together. All of them make the same calls in the same order."""

    def agreed(self, find: Callable[[], T]) -> T:
        """Return what rank 0 finds, of JSON's types; what a person can mend there is raised on every rank."""
        ...

    def mending(self) -> AbstractContextManager[object]:
        """What a person can mend inside, on any rank, is raised on every rank at the end."""
        ...

    def device(self, asked: str) -> str:
        """Return where this rank's networks are."""
        ...

    def predictions(self, ensemble: Ensemble, samples: HeldOut, device: str) -> Predictions | None:
        """Let all networks predict all samples, each of which one rank makes; None on other ranks than 0."""
        ...


class SoloTeam:
    """This process, without MPI."""

    def agreed(self, find: Callable[[], T]) -> T:
        return find()

    def mending(self) -> AbstractContextManager[object]:
        return nullcontext()

    def device(self, asked: str) -> str:
        return asked

    def predictions(self, ensemble: Ensemble, samples: HeldOut, device: str) -> Predictions:
        return predict(ensemble, samples.batches(BATCH), device)
