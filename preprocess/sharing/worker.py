"""A preprocessor of a service: a process that fills lanes until the service has gone."""

from __future__ import annotations

import sys

from preprocess.making.dataset import Dataset
from preprocess.making.preprocessor import Preprocessor
from preprocess.making.stores import open_stores
from preprocess.ring.process import use_one_thread
from preprocess.ring.ring import Ring
from preprocess.samples.errors import CorruptLimitError, SampleError
from preprocess.samples.order import HELD_OUT, TRAIN, epoch_order
from preprocess.samples.stream import LaneSpec
from preprocess.sharing.messages import Channel, ChannelClosed, FillLane, LaneFailed, Skipped, StopFilling
from preprocess.store.sample_store import StoreBudget

#: Longest sleep between two looks at the channel; orders also ring the bell.
_SLEEP_SECONDS = 1.0


class Worker:
    """Preprocessor `index` of a service.

    Args:
        ring: the service's ring.
        index: this preprocessor's number.
        dataset: makes the samples.
        channel: to the service.
        budget: the room for prepared samples; None: none are.
    """

    def __init__(
        self, ring: Ring, index: int, dataset: Dataset, channel: Channel, budget: StoreBudget | None = None
    ) -> None:
        self._channel = channel
        datasets = {dataset.name: dataset}
        stores = {} if budget is None else open_stores(datasets, budget, ring.shape, index, self._say)
        self._preprocessor = Preprocessor(ring, index, datasets, stores=stores)
        self._lanes: dict[int, LaneSpec] = {}
        dataset.report_skips(lambda sample: channel.send(Skipped(sample)))

    def run(self) -> None:
        """Make samples until the service closes the channel."""
        use_one_thread()
        epoch_order(1, 0, 0)  # imports torch, before a lane waits for it
        while True:
            try:
                self._obey()
            except ChannelClosed:
                return
            self._close_deserted()
            if not self._step():
                self._preprocessor.wait(_SLEEP_SECONDS)

    @staticmethod
    def _say(text: str) -> None:
        """Write to the service's log."""
        print(text, file=sys.stderr, flush=True)

    def _obey(self) -> None:
        while (message := self._channel.receive(0.0)[0]) is not None:
            if isinstance(message, FillLane):
                self._lanes[message.lane.lane] = message.lane
                self._preprocessor.open_lane(message.lane)
            elif isinstance(message, StopFilling):
                self._close(message.lane)

    def _step(self) -> bool:
        try:
            return self._preprocessor.step()
        except (SampleError, CorruptLimitError) as error:
            self._give_up(error)
            return True

    def _give_up(self, error: SampleError | CorruptLimitError) -> None:
        """Fill no more lanes that carry the sample, or none at all if there were too many, and say why."""
        for spec in list(self._lanes.values()):
            kind = HELD_OUT if spec.itinerary.first_place == spec.itinerary.places else TRAIN
            if isinstance(error, CorruptLimitError) or (kind, spec.stream.epoch) == (error.kind, error.epoch):
                self._channel.send(LaneFailed(spec.lane, spec.generation, str(error)))
                self._close(spec.lane)

    def _close_deserted(self) -> None:
        for lane in list(self._lanes):
            if self._preprocessor.is_deserted(lane):
                self._close(lane)

    def _close(self, lane: int) -> None:
        if self._lanes.pop(lane, None) is not None:
            self._preprocessor.close_lane(lane)
