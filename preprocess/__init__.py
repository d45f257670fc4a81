"""Samples for many networks at once: sources, order, transforms, and a ring in shared memory.

A preprocessor reads, decodes and augments each sample once; all trainers of a node read it in place. The order and
the augmentation of a sample are functions of (seed, epoch, sample) alone, whoever makes it and whoever reads it.
"""

from preprocess.control import RingShape, bytes_needed, lane_bytes
from preprocess.conversion.convert import Conversion, ConversionProgress, convert
from preprocess.conversion.errors import ConversionError, ConversionFailure
from preprocess.corrupt import SkippedSample
from preprocess.dataset import Dataset
from preprocess.errors import (
    CorruptLimitError,
    DecodeError,
    LaneClosed,
    LaneError,
    RingTimeout,
    SampleError,
    ServiceError,
    SharedMemoryError,
    SourceError,
    SpecError,
    TransformError,
    WriterLost,
)
from preprocess.itinerary import Itinerary, Span
from preprocess.lane import Lane
from preprocess.lane_reader import LaneReader
from preprocess.lane_writer import LaneWriter, Slot
from preprocess.layout import SampleLayout
from preprocess.loader import SharedLoader
from preprocess.nodes import NodeMap
from preprocess.order import HELD_OUT, TRAIN, SampleGenerator, epoch_order
from preprocess.preprocessor import Preprocessor, PreprocessorStatistics
from preprocess.ring import Ring
from preprocess.shared_memory import shared_memory_available, window_bytes
from preprocess.slot_receiver import ReceiverStatistics, SlotReceiver
from preprocess.source import Source, open_source
from preprocess.stream import DatasetSpec, LaneSpec, SourceSpec, StreamKey
from preprocess.throughput import throughput
from preprocess.traffic import Traffic
from preprocess.transform import Pipeline, Transform, build_transforms

__all__ = [
    "HELD_OUT",
    "TRAIN",
    "Conversion",
    "ConversionError",
    "ConversionFailure",
    "ConversionProgress",
    "CorruptLimitError",
    "Dataset",
    "DatasetSpec",
    "DecodeError",
    "Itinerary",
    "Lane",
    "LaneClosed",
    "LaneError",
    "LaneReader",
    "LaneSpec",
    "LaneWriter",
    "NodeMap",
    "Pipeline",
    "Preprocessor",
    "PreprocessorStatistics",
    "ReceiverStatistics",
    "Ring",
    "RingShape",
    "RingTimeout",
    "SampleError",
    "SampleGenerator",
    "SampleLayout",
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
    "SpecError",
    "StreamKey",
    "Traffic",
    "Transform",
    "TransformError",
    "WriterLost",
    "build_transforms",
    "bytes_needed",
    "convert",
    "epoch_order",
    "lane_bytes",
    "open_source",
    "shared_memory_available",
    "throughput",
    "window_bytes",
]
