"""Samples for many networks at once: sources, order, transforms, and a ring in shared memory.

A preprocessor reads, decodes and augments each sample of a stream once; all trainers of a node read it in place. The
order and the augmentation of a sample are functions of (seed, epoch, sample) alone, whichever process makes it or reads
it.

`SharedLoader` takes the place of a DataLoader in scripts of one's own, `convert` writes a data set as one HDF5 file,
`Source` says what a source of samples has. A name is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preprocess.conversion.convert import convert
    from preprocess.making.dataset import Dataset
    from preprocess.samples.errors import DataSpecError, ServiceError, SourceError
    from preprocess.samples.layout import SampleLayout
    from preprocess.samples.order import OrderSpec
    from preprocess.samples.part import Bag, Fold, Part
    from preprocess.samples.stream import DatasetSpec, SourceSpec
    from preprocess.sharing.loader import SharedLoader
    from preprocess.sources.map_style import DrawnDigits
    from preprocess.sources.source import Source, open_source

__all__ = [
    "Bag",
    "DataSpecError",
    "Dataset",
    "DatasetSpec",
    "DrawnDigits",
    "Fold",
    "OrderSpec",
    "Part",
    "SampleLayout",
    "ServiceError",
    "SharedLoader",
    "Source",
    "SourceError",
    "SourceSpec",
    "convert",
    "open_source",
]

_MODULES = {
    "Bag": "preprocess.samples.part",
    "DataSpecError": "preprocess.samples.errors",
    "Dataset": "preprocess.making.dataset",
    "DatasetSpec": "preprocess.samples.stream",
    "DrawnDigits": "preprocess.sources.map_style",
    "Fold": "preprocess.samples.part",
    "OrderSpec": "preprocess.samples.order",
    "Part": "preprocess.samples.part",
    "SampleLayout": "preprocess.samples.layout",
    "ServiceError": "preprocess.samples.errors",
    "SharedLoader": "preprocess.sharing.loader",
    "Source": "preprocess.sources.source",
    "SourceError": "preprocess.samples.errors",
    "SourceSpec": "preprocess.samples.stream",
    "convert": "preprocess.conversion.convert",
    "open_source": "preprocess.sources.source",
}
"""Name -> the module that has it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
