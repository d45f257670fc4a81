"""Samples for many networks at once: sources, order, transforms, and a ring in shared memory.

A preprocessor reads, decodes and augments each sample of a stream once; all trainers of a node read it in place. The
order and the augmentation of a sample are functions of (seed, epoch, sample) alone, whichever process makes it or reads
it.

A name is loaded when it is first asked for: a launcher needs one of them, a trainer some.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preprocess.conversion.convert import Conversion, ConversionProgress, convert
    from preprocess.conversion.errors import ConversionError, ConversionFailure
    from preprocess.making.dataset import Dataset
    from preprocess.making.nodes import NodeMap
    from preprocess.making.preprocessor import Preprocessor, PreprocessorStatistics
    from preprocess.making.slot_receiver import SlotReceiver
    from preprocess.making.stores import is_divided, open_stores
    from preprocess.making.throughput import MadeRates, made_rates, throughput
    from preprocess.making.traffic import Traffic
    from preprocess.making.worth import SampleCosts, is_worth_keeping, sample_costs
    from preprocess.ring.control import RingShape, bytes_needed, lane_bytes
    from preprocess.ring.lane import Lane
    from preprocess.ring.lane_reader import LaneReader
    from preprocess.ring.lane_writer import LaneWriter, Slot
    from preprocess.ring.ring import Ring
    from preprocess.ring.shared_memory import shared_memory_available, window_bytes
    from preprocess.samples.block_order import BlockOrder, OrderSpec
    from preprocess.samples.corrupt import SkippedSample
    from preprocess.samples.errors import (
        CorruptLimitError,
        DataSpecError,
        DecodeError,
        LaneClosed,
        LaneError,
        RingTimeout,
        SampleError,
        ServiceError,
        SharedMemoryError,
        SourceError,
        TransformError,
        WriterLost,
    )
    from preprocess.samples.itinerary import Itinerary, Span
    from preprocess.samples.layout import SampleLayout
    from preprocess.samples.member import MemberOrder
    from preprocess.samples.order import HELD_OUT, TRAIN, SampleGenerator, epoch_order
    from preprocess.samples.part import Bag, Fold, Part
    from preprocess.samples.stream import DatasetSpec, LaneSpec, SourceSpec, StreamKey
    from preprocess.sharing.loader import SharedLoader
    from preprocess.sources.drawn_digits import DrawnDigits
    from preprocess.sources.source import Source, open_source
    from preprocess.store.finished_samples import FinishedSamples
    from preprocess.store.sample_store import SampleStore, StoreBudget, StoreStatistics
    from preprocess.transforms.transform import Pipeline, Transform, build_transforms

__all__ = [
    "HELD_OUT",
    "TRAIN",
    "Bag",
    "BlockOrder",
    "Conversion",
    "ConversionError",
    "ConversionFailure",
    "ConversionProgress",
    "CorruptLimitError",
    "Dataset",
    "DatasetSpec",
    "DecodeError",
    "DrawnDigits",
    "FinishedSamples",
    "Fold",
    "Itinerary",
    "Lane",
    "LaneClosed",
    "LaneError",
    "LaneReader",
    "LaneSpec",
    "LaneWriter",
    "MemberOrder",
    "NodeMap",
    "OrderSpec",
    "Part",
    "Pipeline",
    "Preprocessor",
    "PreprocessorStatistics",
    "Ring",
    "RingShape",
    "RingTimeout",
    "SampleCosts",
    "SampleError",
    "SampleGenerator",
    "SampleLayout",
    "SampleStore",
    "ServiceError",
    "SharedLoader",
    "SharedMemoryError",
    "SkippedSample",
    "Slot",
    "SlotReceiver",
    "Source",
    "SourceError",
    "SourceSpec",
    "Span",
    "DataSpecError",
    "StoreBudget",
    "StoreStatistics",
    "StreamKey",
    "Traffic",
    "Transform",
    "TransformError",
    "WriterLost",
    "build_transforms",
    "bytes_needed",
    "convert",
    "epoch_order",
    "is_divided",
    "is_worth_keeping",
    "lane_bytes",
    "open_source",
    "open_stores",
    "sample_costs",
    "shared_memory_available",
    "made_rates",
    "MadeRates",
    "throughput",
    "window_bytes",
]

_NAMES = {
    "preprocess.conversion.convert": "Conversion ConversionProgress convert",
    "preprocess.conversion.errors": "ConversionError ConversionFailure",
    "preprocess.making.dataset": "Dataset",
    "preprocess.making.nodes": "NodeMap",
    "preprocess.making.preprocessor": "Preprocessor PreprocessorStatistics",
    "preprocess.making.slot_receiver": "SlotReceiver",
    "preprocess.making.stores": "is_divided open_stores",
    "preprocess.making.throughput": "MadeRates made_rates throughput",
    "preprocess.making.traffic": "Traffic",
    "preprocess.making.worth": "SampleCosts is_worth_keeping sample_costs",
    "preprocess.ring.control": "RingShape bytes_needed lane_bytes",
    "preprocess.ring.lane": "Lane",
    "preprocess.ring.lane_reader": "LaneReader",
    "preprocess.ring.lane_writer": "LaneWriter Slot",
    "preprocess.ring.ring": "Ring",
    "preprocess.ring.shared_memory": "shared_memory_available window_bytes",
    "preprocess.samples.block_order": "BlockOrder OrderSpec",
    "preprocess.samples.corrupt": "SkippedSample",
    "preprocess.samples.errors": (
        "CorruptLimitError DataSpecError DecodeError LaneClosed LaneError RingTimeout SampleError "
        "ServiceError SharedMemoryError SourceError TransformError WriterLost"
    ),
    "preprocess.samples.itinerary": "Itinerary Span",
    "preprocess.samples.layout": "SampleLayout",
    "preprocess.samples.member": "MemberOrder",
    "preprocess.samples.order": "HELD_OUT TRAIN SampleGenerator epoch_order",
    "preprocess.samples.part": "Bag Fold Part",
    "preprocess.samples.stream": "DatasetSpec LaneSpec SourceSpec StreamKey",
    "preprocess.sharing.loader": "SharedLoader",
    "preprocess.sources.drawn_digits": "DrawnDigits",
    "preprocess.sources.source": "Source open_source",
    "preprocess.store.finished_samples": "FinishedSamples",
    "preprocess.store.sample_store": "SampleStore StoreBudget StoreStatistics",
    "preprocess.transforms.transform": "Pipeline Transform build_transforms",
}
"""Module -> what of it is named here."""
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
