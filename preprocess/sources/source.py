"""Sources of samples: the protocol, how one is opened by name, and what it says of the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from preprocess.files.memory import check_claim
from preprocess.samples.errors import SourceError, load_object, spelling_advice
from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.samples.order import BlockOrder, OrderSpec, global_generators_seeded
from preprocess.sources.arrays import Archive, ArraySource, idx_array, open_array
from preprocess.sources.checked_files import bounded, damage_named, existing, refusals_named, try_in_time
from preprocess.sources.encoded_images import (
    IMAGE_EXTENSIONS,
    ImageFolderSource,
    check_channels,
    has_ending,
    images_below,
)
from preprocess.sources.hdf5 import check_numbers, check_rows, open_file, refuse_elsewhere
from preprocess.sources.map_style import MapStyleSource, constructed


@runtime_checkable
class Source(Protocol):
    """A sized collection of (input, target), read by index. A spec names one of your own as `module:Name`.

    A class with these three, called with the arguments of the spec, is a source:

        class Waves:
            def __init__(self, count: int = 1000) -> None:
                self.count, self.layout = count, SampleLayout((64,), "float32")  # the target is a class, int64

            def __len__(self) -> int:
                return self.count

            def read(self, index: int) -> tuple[np.ndarray, int]:
                ...

    Three more methods are asked for where they help:

    * `describe(index)` returns what messages call a sample, such as the path of its file;
    * `block_starts()` returns the first sample of each run of samples that are read together, ascending from 0, or
      None: orders by blocks go by them. If blocks are read whole, `chunk_bytes()` returns the bytes of all of them once
      they are read, and of those that a process keeps;
    * `copy(indices, inputs, targets)` writes many samples into inputs and targets of the layout, (count, ...) each; a
      source that copies many as easily as one also has `copies_many = True`.

    A source of encoded images has `encoded = True`: `read` returns the bytes of an image file, uint8 (size,), and the
    layout describes what they decode to, with -1 for a height or width that differs between samples.

    What is drawn at random in `read` comes from the global generators of torch, NumPy or Python, which are seeded for
    each sample.

    Attributes:
        layout: shape and dtype of every sample, before any transform.
    """

    @property
    def layout(self) -> SampleLayout: ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> tuple[Array, Any]:
        """Return the input and the target of one sample; the input may be a view that is not to be written to."""
        ...


class Subset:
    """A slice of another source.

    Attributes:
        source: the other.
        indices: the indices of the samples there.
    """

    def __init__(self, source: Source, indices: range) -> None:
        self.source, self.indices = source, indices
        self.layout = source.layout
        self.encoded = bool(getattr(source, "encoded", False))
        self.copies_many = bool(getattr(source, "copies_many", False))

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, index: int) -> tuple[Array, Any]:
        return self.source.read(self.indices[index])

    def copy(self, indices: Indices, inputs: Array, targets: Array) -> None:
        source: Any = self.source
        source.copy(self.indices.start + self.indices.step * indices.astype(np.int64), inputs, targets)

    def inner(self, index: int) -> tuple[Source, int]:
        """Return where a sample comes from, and its index there."""
        return self.source, self.indices[index]


def described(source: Source, index: int) -> str:
    """Return what a sample is called in messages, such as the path of its file; empty if the source has no word."""
    while isinstance(source, Subset):
        source, index = source.inner(index)
    describe = getattr(source, "describe", None)
    return str(describe(index)) if describe else ""


_OPENERS = {
    "idx": "arrays:open_idx",
    "numpy": "arrays:open_numpy",
    "hdf5": "hdf5:open_hdf5",
    "image_folder": "encoded_images:open_image_folder",
    "tar": "tar_shards:open_tar",
    "parquet": "formats.tables:open_parquet",
    "arrow": "formats.tables:open_arrow",
    "zarr": "formats.zarr_store:open_zarr",
    "netcdf": "formats.windows:open_netcdf",
    "lmdb": "formats.lmdb_file:open_lmdb",
    "tokens": "formats.tokens:open_tokens",
}
"""Name of a built-in source -> the module of this room that opens it, and its function there."""


class _BuiltInSources(Mapping[str, "Callable[..., Source]"]):
    """The functions of `_OPENERS`, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Callable[..., Source]:
        module, _, function = _OPENERS[name].partition(":")
        found: Callable[..., Source] = getattr(import_module(f"preprocess.sources.{module}"), function)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_OPENERS)

    def __len__(self) -> int:
        return len(_OPENERS)


def built_in_sources() -> Mapping[str, Callable[..., Source]]:
    """Return the built-in sources: name -> function that opens one."""
    return _BuiltInSources()


def open_source(
    name: str | Any,
    arguments: Mapping[str, Any] | None = None,
    subset: int | Sequence[int] | None = None,
    looks: int = 1,
    seed: int = 0,
) -> Source:
    """Open a source of samples.

    Args:
        name: a built-in source's name, or `module:Name` of a class or function that gives a map-style data set or a
            `Source`, or such a data set or source itself.
        arguments: keyword arguments of the source.
        subset: how many of its first samples to keep, or [start, stop] or [start, stop, step] as in a slice.
        looks: for a map-style data set, how many samples may be tried until one shows the layout of all.
        seed: see `constructed`.

    Raises:
        SourceError: anything that a person can have got wrong: name, arguments, files, module, subset.
    """
    given = dict(arguments or {})
    source = _open(name, given, looks, seed)
    if len(source) == 0:
        raise SourceError(name, "a source needs at least one sample", "give one that is not empty")
    return source if subset is None else _take_subset(source, subset)


def _open(name: str | Any, arguments: dict[str, Any], looks: int, seed: int) -> Source:
    if isinstance(name, Source):
        return name
    if not isinstance(name, str):
        return MapStyleSource(name, type(name).__qualname__, looks)
    if ":" not in name:
        return _open_built_in(name, arguments)
    found = constructed(name, arguments, seed)
    return found if _is_source(found, name) else MapStyleSource(found, name, looks)


def _is_source(found: Any, name: str) -> bool:
    """Whether what a person's own class or function gave is a source; it may be a map-style data set.

    Raises:
        SourceError: it can be read as a source is, and something of one is missing.
    """
    if not callable(getattr(type(found), "read", None)) or hasattr(type(found), "__getitem__"):
        return False
    kind, mend = type(found).__name__, "see preprocess.Source for what a source has"
    if missing := [what for what in ("layout", "__len__") if not hasattr(found, what)]:
        raise SourceError(name, f"it gave a {kind}, which has read() and lacks {' and '.join(missing)}", mend)
    if not isinstance(found.layout, SampleLayout):
        rule = f"the layout of its {kind} is a {type(found.layout).__name__}, and no preprocess.SampleLayout"
        raise SourceError(name, rule, mend)
    return True


def _open_built_in(name: str, arguments: dict[str, Any]) -> Source:
    built_in = built_in_sources()
    if name not in built_in:
        advice = f"{spelling_advice(name, built_in)}; or module:Name of a map-style data set or a source"
        raise SourceError(name, "no source has this name", advice)
    parameters = signature(built_in[name]).parameters
    for key in arguments:
        if key not in parameters:
            raise SourceError(key, f"source {name!r} has no such argument", spelling_advice(key, parameters))
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in arguments:
            raise SourceError(arguments, f"source {name!r} needs the argument {key!r}", f"add {key}: ...")
    with refusals_named():
        source = built_in[name](**arguments)
        path = str(arguments.get("path") or next(iter(arguments.values())))
        check_claim(path, len(source) * np.dtype(np.int64).itemsize, f"the order of its {len(source)} samples")
        if not getattr(source, "encoded", False):
            check_claim(path, source.layout.input_bytes + source.layout.target_bytes, "a sample")
        return source


def _take_subset(source: Source, subset: int | Sequence[int]) -> Subset:
    parts = [subset] if isinstance(subset, int) else list(subset)
    whole = all(isinstance(part, int) for part in parts)
    if not whole or not 1 <= len(parts) <= 3 or (len(parts) == 3 and parts[2] == 0):
        raise SourceError(subset, "a subset is a number, [start, stop] or [start, stop, step]", "write subset: 1000")
    indices = range(len(source))[slice(*parts)]
    if not indices:
        raise SourceError(subset, f"it selects none of the source's {len(source)} samples", "select at least one")
    return Subset(source, indices)


def block_order(
    source: Source, order: OrderSpec | None, what: str, held_out: Source | None = None
) -> BlockOrder | None:
    """Return the order of a source's samples by blocks; None where all samples are shuffled with all.

    Args:
        held_out: where held-out samples come from; they may have no blocks.
        what: the name of the data set, for errors.

    Raises:
        SourceError: the source has no blocks, and the order does not say how long they are to be.
    """
    if order is None or order.shuffle == "samples":
        return None
    starts = _starts(source, order)
    if starts is None:
        rule = "its samples lie in no blocks: each is read alone"
        mend = "say how many samples one is to have, such as block: 256; or shuffle samples, which costs nothing here"
        raise SourceError(what, rule, mend)
    others = None if held_out is None else _starts(held_out, order)
    evaluated = () if others is None else tuple(others.tolist())
    return BlockOrder(len(source), tuple(starts.tolist()), order.window, evaluated)


def _starts(source: Source, order: OrderSpec) -> Indices | None:
    """The first sample of each block as the order asks for them; None where nothing says where blocks begin."""
    starts = block_starts(source)
    if starts is not None:
        return _joined(starts, order.block)
    return None if order.block is None else np.arange(0, len(source), order.block)


def block_starts(source: Source) -> Indices | None:
    """Return the first sample of each block, ascending from 0; None where the source has none.

    Built-in sources whose samples lie in chunks have a method `block_starts`; a map-style data set may have an
    attribute of that name.

    Raises:
        SourceError: a map-style data set gives something else.
    """
    if isinstance(source, Subset):
        inner = block_starts(source.source)
        if inner is None:
            return None
        blocks = np.searchsorted(inner, np.array(source.indices, np.int64), "right")
        return np.flatnonzero(np.diff(blocks, prepend=-1))
    if isinstance(source, MapStyleSource):
        given = getattr(source.items, "block_starts", None)
        return None if given is None else _checked(given, len(source), type(source.items).__qualname__)
    find = getattr(source, "block_starts", None)
    starts: Indices | None = None if find is None else find()
    return starts


def block_bytes(source: Source, blocks: int) -> tuple[int, int]:
    """Return (bytes of a block, bytes of blocks that a process keeps); (0, 0) where nothing is kept.

    Args:
        blocks: how many there are; their mean is told.
    """
    while isinstance(source, Subset):
        blocks = max(1, blocks * len(source.source) // len(source))
        source = source.source
    find = getattr(source, "chunk_bytes", None)
    if find is None:
        return 0, 0
    read, kept = find()
    return -(-read // blocks), kept


def _checked(given: Any, length: int, what: str) -> Indices:
    """Return the starts of blocks that a map-style data set has, once they are checked."""
    try:
        starts = np.asarray(given)
        ok = starts.ndim == 1 and starts.dtype.kind in "iu" and starts.size and starts[0] == 0
        ok = ok and starts[-1] < length and bool(np.all(np.diff(starts.astype(np.int64)) > 0))
    except (TypeError, ValueError):
        ok = False
    if not ok:
        rule = f"its block_starts are not whole numbers that ascend from 0 and stay below {length}"
        raise SourceError(what, rule, "let block_starts hold the first sample of each block, such as [0, 500, 1000]")
    return starts.astype(np.int64)


def _joined(starts: Indices, least: int | None) -> Indices:
    """Blocks of at least so many samples; the last one may have fewer."""
    if least is None:
        return starts
    kept = [0]
    for start in starts[1:].tolist():
        if start - kept[-1] >= least:
            kept.append(start)
    return np.array(kept, np.int64)


Weights = npt.NDArray[np.float64]

BALANCED = "balanced"
_MOST = 2**24
"""torch.multinomial draws from no more."""


class _Samples:
    """A built-in source as a sequence of (input, target)."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < len(self._source):
            raise IndexError(index)
        return self._source.read(index)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return map(self.__getitem__, range(len(self)))


def weights_of(source: Source, asked: str, seed: int) -> Weights:
    """Return the weight of each sample, (n,).

    Args:
        asked: `balanced`: one over the samples of the same class, so that each class is drawn as often; or
            `module:Name` of a function of the samples that gives their weights, or of such weights.
        seed: of the global generators while the function is called.

    Raises:
        SourceError: it gives no weights, or samples have no classes.
    """
    if asked == BALANCED:
        return _balanced(source)
    found = load_object(asked, SourceError)
    samples = source.items if isinstance(source, MapStyleSource) else _Samples(source)
    try:
        with global_generators_seeded(seed):
            given = found(samples) if callable(found) else found
    except Exception as cause:  # the user's code may raise anything
        rule = f"calling it with the training samples raised {type(cause).__name__}: {cause}"
        raise SourceError(asked, rule, "mend the function") from cause
    return checked_weights(given, len(source), asked)


def checked_weights(given: Any, length: int, what: str) -> Weights:
    """Return weights that somebody gave as an array. SourceError unless there is a usable one for each sample."""
    mend = "give a number of at least 0 for each training sample, as WeightedRandomSampler takes them"
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError) as cause:
        raise SourceError(what, f"it gives a {type(given).__name__}, and no weights", mend) from cause
    if weights.shape != (length,):
        raise SourceError(what, f"it gives weights of shape {weights.shape} for {length} training samples", mend)
    if length > _MOST:
        rule = f"torch draws by weights from at most {_MOST} samples, and there are {length}"
        raise SourceError(what, rule, "take the weights away")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise SourceError(what, "some of its weights are negative or not finite, or all are 0", mend)
    return weights


def _balanced(source: Source) -> Weights:
    """One over the number of samples of the same class; all targets are read once, unless the data set lists them."""
    items = source.items if isinstance(source, MapStyleSource) else None
    listed = getattr(items, "targets", None)
    if listed is None or len(listed) != len(source):
        listed = [source.read(index)[1] for index in range(len(source))]
    targets = np.asarray(listed)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim != 1 or targets.dtype.kind not in "iub":
        rule = f"balanced goes by classes, and the targets are {targets.dtype} of shape {targets.shape[1:]}"
        raise SourceError(BALANCED, rule, "write module:Name of a function that gives a weight for each sample")
    _, classes, counts = np.unique(targets, return_inverse=True, return_counts=True)
    return checked_weights(1.0 / counts[classes], len(source), BALANCED)


KINDS = "a folder of images, an image, an .npy, .npz or HDF5 file, or an IDX file"
HDF5 = (".h5", ".hdf5", ".he5")


def open_unlabelled(path: str, inputs: str = "inputs", channels: int = 3) -> ArraySource | ImageFolderSource:
    """Open inputs without targets.

    Args:
        path: a folder with images at any depth, an image, an .npy file, an .npz or HDF5 file, or an IDX file.
        inputs: in an .npz or HDF5 file, the name of the array of inputs, (n, ...).
        channels: 3 or 1, of decoded images.

    Raises:
        SourceError: there is no such file, or it holds no such inputs.
    """
    place, name = Path(path), path.lower()
    if place.is_dir():
        return _images(place, images_below(place, IMAGE_EXTENSIONS), channels)
    if has_ending(name, IMAGE_EXTENSIONS):
        return _images(place.parent, [existing(path).name], channels)
    if name.endswith(".npy"):
        return _arrays(open_array(path), path)
    if name.endswith(".npz"):
        archive = open_array(path)
        return _arrays(archive.array(inputs) if isinstance(archive, Archive) else archive, path)
    if name.endswith(HDF5):
        return _of_hdf5(path, inputs)
    return _arrays(idx_array(path), path)


def _images(root: Path, files: list[str], channels: int) -> ImageFolderSource:
    if not files:
        rule = f"holds no image ({', '.join(IMAGE_EXTENSIONS)})" if root.is_dir() else "there is no such file"
        raise SourceError(str(root), rule, f"give {KINDS}")
    return ImageFolderSource(root, files, [0] * len(files), (), check_channels(channels))


def try_inputs(told: str) -> None:
    """Open an HDF5 file without targets, in a process of its own, and read a little of it."""
    bounded(_opened_hdf5, told)


def _of_hdf5(path: str, inputs: str) -> ArraySource:
    try_in_time("HDF5", try_inputs, str(existing(path)), inputs=inputs)
    return _opened_hdf5(path, inputs)


def _opened_hdf5(path: str, inputs: str) -> ArraySource:
    import h5py

    file = open_file(path)
    with damage_named(path, "it"):
        refuse_elsewhere(path, file, "give a file that holds its inputs itself", inputs)
        found = _named(file, [name for name in file if isinstance(file[name], h5py.Dataset)], inputs, path)
        check_numbers(path, found)
        check_rows(path, found, 1)
    return _arrays(found, path)


def _named(arrays: Any, names: list[str], name: str, path: str) -> Any:
    if name not in names:
        raise SourceError(name, f"{path} holds no such array", spelling_advice(name, names))
    return arrays[name]


def _arrays(inputs: Any, path: str) -> ArraySource:
    if inputs.ndim < 2:
        rule = f"has the shape {inputs.shape}, and samples lie along the first axis"
        raise SourceError(path, rule, "give inputs of shape (n, ...)")
    targets: Array = np.zeros(len(inputs), np.int64)
    return ArraySource(inputs, targets, path)
