"""The run's book of samples that could not be made: written down once each, counted over all sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.coordination.failures import TornDataError
from fleet.coordination.protocol import SampleSkipped, SampleTorn, SkipSamples
from fleet.journal import events
from fleet.journal.journal import Journal
from preprocess.samples.errors import CorruptLimitError, SkippedSample
from preprocess.samples.order import HELD_OUT, TRAIN

MOST_NAMED = 5


class SkippedBook:
    """The samples that the preprocessors of a run skipped.

    Args:
        journal: each is written there, once.
        limits: by data set, how many there may be.
        told: events of the run's earlier sessions.
    """

    def __init__(self, journal: Journal, limits: Mapping[str, int], told: Iterable[events.Event]) -> None:
        self._journal, self._limits = journal, limits
        self._samples: dict[str, dict[tuple[str, int], SkippedSample]] = {name: {} for name in limits}
        for event in told:
            if isinstance(event, events.Skipped) and event.data in self._samples:
                self._enter(_sample_of(event))

    @property
    def counts(self) -> dict[str, int]:
        """How many samples of each data set were skipped."""
        return {name: len(samples) for name, samples in self._samples.items()}

    def take(self, message: SampleSkipped | SampleTorn) -> None:
        """Write a sample down that was skipped, unless it is known.

        Raises:
            CorruptLimitError: it is one too many.
            TornDataError: none took its place.
        """
        if isinstance(message, SampleTorn):
            raise TornDataError(message.data, f"rank {message.rank}: {message.text}", message.lines)
        sample = message.sample
        if self._enter(sample):
            self._journal.write(
                events.Skipped(
                    data=sample.data,
                    kind=sample.kind,
                    sample=sample.sample,
                    substitute=sample.substitute,
                    epoch=sample.epoch,
                    stage=sample.stage,
                    reason=sample.reason,
                    rank=message.rank,
                )
            )
            self.check(sample.data)

    def check(self, *data: str) -> None:
        """Raise CorruptLimitError if one of these data sets has more than it may have; a task's own has no limit."""
        for name in self._limits.keys() & set(data):
            samples, limit = self._samples[name], self._limits[name]
            if len(samples) > limit:
                raise CorruptLimitError(name, limit, list(map(str, samples.values()))[:MOST_NAMED])

    def orders(self) -> list[SkipSamples]:
        """What preprocessors are told at the start: a sample whose source raised stays skipped, mended or not.

        One that a transform refused is tried in each epoch, whose random numbers may suit it.
        """
        return [
            SkipSamples(name, train=_indices(samples, TRAIN), held_out=_indices(samples, HELD_OUT))
            for name, samples in self._samples.items()
            if any(sample.stage == "source" for sample in samples.values())
        ]

    def _enter(self, sample: SkippedSample) -> bool:
        """Say whether the sample was not known."""
        samples = self._samples.setdefault(sample.data, {})
        known = (sample.kind, sample.sample) in samples
        samples.setdefault((sample.kind, sample.sample), sample)
        return not known


def _indices(samples: Mapping[tuple[str, int], SkippedSample], kind: str) -> tuple[int, ...]:
    return tuple(sorted(key[1] for key, sample in samples.items() if key[0] == kind and sample.stage == "source"))


def _sample_of(event: events.Skipped) -> SkippedSample:
    keys = ("data", "kind", "sample", "substitute", "epoch", "reason", "stage")
    return SkippedSample(**{key: getattr(event, key) for key in keys})
