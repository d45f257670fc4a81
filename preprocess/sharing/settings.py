"""What a service is started with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic import TypeAdapter

from preprocess.ring.control import RingShape, lane_bytes
from preprocess.samples.layout import SampleLayout
from preprocess.samples.stream import DatasetSpec


@dataclass(frozen=True)
class ServiceSettings:
    """How a service makes and keeps samples.

    Attributes:
        data: the data set, by names; None for one that is handed over as an object.
        digest: names the data set: loaders of another one are refused.
        workers: preprocessors of the service, each a process.
        lane_samples: samples that a lane holds at least.
        slot_samples: samples of a slot.
        lanes: most lanes that are in use at a time: one for each group of loaders, and one for each that is re-formed.
        loaders: most loaders at a time.
        store: bytes of memory for prepared samples; None: as many as all take, within half of what is free.
        patience: seconds that a loader waits for others at the start of an epoch.
        linger: seconds without a loader after which the service ends.
        paths: where Python looks for modules, so that the service imports what the loader can.
    """

    data: DatasetSpec | None
    digest: str
    workers: int
    lane_samples: int
    slot_samples: int
    patience: float
    linger: float
    paths: tuple[str, ...] = ()
    lanes: int = 32
    loaders: int = 64
    store: int | None = None

    def ring_shape(self, layout: SampleLayout) -> RingShape:
        """Return the dimensions of the ring for samples of a layout."""
        size = lane_bytes(layout, self.lane_samples, self.slot_samples, self.workers)
        return RingShape(self.lanes, -(-size // 4096) * 4096, self.slot_samples, self.loaders, self.workers)


SETTINGS: TypeAdapter[ServiceSettings] = TypeAdapter(ServiceSettings)
"""Reads and writes them as JSON."""


def digest_of(values: Mapping[str, Any]) -> str:
    """Return a digest of what JSON can hold."""
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()
