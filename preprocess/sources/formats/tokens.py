"""Token ids in files, cut into samples for language models: `context` ids, and the same shifted by one."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from preprocess.files.memory import BLOCK_BYTES, check_claim
from preprocess.files.reading import open_file
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.arrays import open_array
from preprocess.sources.checked_files import existing, file_paths

_NPY = b"\x93NUMPY"

#: dtype of the ids in a file -> as small a one in which samples carry them; bytes alone would be taken for pictures.
_CARRIED = {
    "uint8": "uint16",
    "int8": "uint16",
    "uint16": "uint16",
    "int16": "uint16",
    "uint32": "uint32",
    "int32": "uint32",
    "uint64": "int64",
    "int64": "int64",
}


def _mapped_ids(path: str, dtype: str | None) -> Array:
    """Map a file of ids, (n,): an .npy file, which says its dtype, or a raw one, whose dtype is given.

    Raises:
        SourceError: it holds no whole numbers, or is of another shape, size or dtype than it should be.
    """
    if dtype is not None and dtype not in _CARRIED:
        raise SourceError(dtype, "is no dtype of token ids", spelling_advice(str(dtype), _CARRIED))
    with open_file(existing(path)) as file:
        is_npy = file.read(len(_NPY)) == _NPY
    ids = open_array(path) if is_npy else _raw(path, dtype)
    if ids.ndim != 1 or ids.dtype.name not in _CARRIED:
        rule = f"holds {ids.dtype.name} of shape {ids.shape}, and token ids are whole numbers in one row"
        raise SourceError(path, rule, "save them anew as np.save(path, ids.reshape(-1).astype(np.uint16))")
    if dtype is not None and ids.dtype.name != dtype:
        raise SourceError(dtype, f"{path} says itself that it holds {ids.dtype.name}", "leave out dtype")
    return ids


def _carried_dtype(files: list[Array]) -> np.dtype[np.generic]:
    """Return the dtype in which samples carry the ids of all these files."""
    return np.result_type(*{_CARRIED[ids.dtype.name] for ids in files})


def _raw(path: str, dtype: str | None) -> Array:
    if dtype is None:
        rule = "is no .npy file, and a raw file does not say what its numbers are"
        raise SourceError(path, rule, "add dtype: uint16, or what it was written as")
    little = np.dtype(dtype).newbyteorder("<")
    with open_file(path) as file:
        size, item = os.fstat(file.fileno()).st_size, little.itemsize
        if size % item:
            rule = f"has {size} bytes, which are no whole number of {dtype}, {item} bytes each"
            raise SourceError(path, rule, "mend dtype, or copy the file anew")
        return np.memmap(file, little, mode="r") if size else np.empty(0, little)


#: The target where there is nothing to predict: what torch's cross entropy ignores.
IGNORED = -100

_PACKINGS = ("stream", "documents")
_SCANNED = 1 << 24  # ids that are looked through at once for ends of documents


class Cuts(Protocol):
    """Begins and ends of the samples of one file."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> tuple[int, int]:
        """Return the first id of a sample, and the one after its last."""
        ...


@dataclass(frozen=True)
class Windows:
    """Samples that begin every `stride` ids, each of `width` ids, in a file of `length`."""

    length: int
    width: int
    stride: int

    def __len__(self) -> int:
        return max(0, (self.length - self.width) // self.stride + 1)

    def __getitem__(self, number: int) -> tuple[int, int]:
        start = number * self.stride
        return start, start + self.width


class WholeDocuments:
    """Samples of consecutive whole documents, as many as go into `width` ids.

    A longer document begins a sample and goes on in the next ones, from the last id of the sample before, so that
    each of its ids is predicted; what is left of it at its end may be followed by others.

    Args:
        ends: for each document, where the next one begins; the last one's is the file's length.
        width: ids of a sample, at most.
    """

    def __init__(self, ends: npt.NDArray[np.int64], width: int) -> None:
        starts, stops = _packed(ends, width)
        self._starts, self._stops = np.array(starts, np.int64), np.array(stops, np.int64)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> tuple[int, int]:
        return self._starts.item(number), self._stops.item(number)


class TokensSource:
    """Samples of `context` ids that follow each other in a file, and the ids that come after each of them.

    Args:
        paths: where the files lie.
        files: their ids, (n,) each.
        cuts: where their samples lie.
        context: T, ids of an input.
        end: the id that fills an input where a sample has fewer; the targets there are IGNORED. None: none has fewer.
        vocabulary: how many ids there are; None: not known.
    """

    def __init__(
        self,
        paths: Sequence[str],
        files: Sequence[Array],
        cuts: Sequence[Cuts],
        context: int,
        end: int | None,
        vocabulary: int | None,
    ) -> None:
        self._paths, self._files, self._cuts = list(paths), list(files), list(cuts)
        self._context, self._end, self._vocabulary = context, end, vocabulary
        self._ends: list[int] = np.cumsum([len(part) for part in cuts]).tolist()
        self._dtype = _carried_dtype(self._files)
        self._signed = np.dtype("int32" if self._dtype == np.uint16 else "int64")
        target = self._dtype if end is None else self._signed
        self.layout = SampleLayout((context,), self._dtype.name, (context,), target.name)

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> tuple[Array, Array]:
        file, start, stop = self._place(index)
        ids = self._files[file][start:stop]
        self._check(ids, index)
        ids = ids.astype(self._dtype, copy=False)
        if self._end is None:
            return ids[:-1], ids[1:]
        inputs = np.full(self._context, self._end, self._dtype)
        targets = np.full(self._context, IGNORED, self._signed)
        inputs[: len(ids)] = ids[: self._context]
        targets[: len(ids) - 1] = ids[1:]
        return inputs, targets

    def describe(self, index: int) -> str:
        """Return the file of a sample, and which of its ids it is."""
        file, start, stop = self._place(index)
        return f"{self._paths[file]}, ids {start} to {stop - 1}"

    def _place(self, index: int) -> tuple[int, int, int]:
        file = bisect_right(self._ends, index)
        start, stop = self._cuts[file][index - (self._ends[file - 1] if file else 0)]
        return file, start, stop

    def _check(self, ids: Array, index: int) -> None:
        if ids.dtype.kind == "i" and (least := int(ids.min())) < 0:
            raise ValueError(f"{self.describe(index)}: {least} is among them, and ids are at least 0")
        if self._vocabulary is not None and (most := int(ids.max())) >= self._vocabulary:
            raise ValueError(
                f"{self.describe(index)}: {most} is among them, and a vocabulary of {self._vocabulary} "
                f"has ids up to {self._vocabulary - 1}"
            )


def open_tokens(
    path: str | Sequence[str],
    context: int,
    stride: int | None = None,
    dtype: str | None = None,
    packing: str = "stream",
    end: int | None = None,
    vocabulary: int | None = None,
) -> TokensSource:
    """Open files of token ids; a sample lies in one file, and nothing of the others is read for it.

    Args:
        path: an .npy file of shape (n,), a raw file of little-endian numbers, a pattern, or a list of these.
        context: T, ids of an input; the target is the T ids from the second one on.
        stride: how many ids after a sample's first the next one's is; by default T, so that each id is predicted once.
        dtype: the type of numbers in raw files, such as uint16.
        packing: stream: samples begin every `stride` ids. documents: each sample has whole documents, as many as go
            into it, and only a document that is longer than a sample is cut. The files are read once, to find them.
        end: with documents, the id that ends each of them; it also fills inputs that have room left, whose targets
            there are IGNORED.
        vocabulary: how many ids there are; a sample with another id is then an error that names its place.

    Raises:
        SourceError: an argument is out of its range, a file holds no ids, or none holds a sample.
    """
    _check_arguments(context, stride, packing, end, vocabulary)
    paths = file_paths(path, (".npy",), "a file, a pattern such as train-*.npy, or a list of these")
    files = [_mapped_ids(file, dtype) for file in paths]
    cuts: list[Cuts]
    if end is None:
        cuts = [Windows(len(ids), context + 1, stride or context) for ids in files]
    else:
        cuts = [WholeDocuments(_document_ends(file, ids, end), context + 1) for file, ids in zip(paths, files)]
    if not any(len(part) for part in cuts):
        needs = "two ids" if end is not None else f"{context + 1} ids, one more than context"
        longest = max(len(ids) for ids in files)
        raise SourceError(path, f"a sample needs {needs}, and no file has more than {longest}", "lower context")
    source = TokensSource(paths, files, cuts, context, end, vocabulary)
    if end is not None and end > np.iinfo(source.layout.input_dtype).max:
        raise SourceError(end, f"ids of {source.layout.input_dtype} are smaller", "give the id that ends documents")
    return source


def _check_arguments(context: int, stride: int | None, packing: str, end: int | None, vocabulary: int | None) -> None:
    for name, value, least in (
        ("context", context, 1),
        ("stride", stride, 1),
        ("end", end, 0),
        ("vocabulary", vocabulary, 1),
    ):
        if value is not None and (type(value) is not int or value < least):
            raise SourceError(value, f"{name} is a whole number of at least {least}", f"mend {name}")
    if packing not in _PACKINGS:
        raise SourceError(packing, "packing is stream or documents", spelling_advice(str(packing), _PACKINGS))
    if packing == "documents" and end is None:
        raise SourceError(packing, "documents are found by the id that ends each of them", "add end: and that id")
    if packing == "documents" and stride is not None:
        raise SourceError(stride, "samples of whole documents begin where the last one ended", "leave out stride")
    if packing == "stream" and end is not None:
        raise SourceError(
            end, "a stream is cut without regard to documents", "leave out end, or add packing: documents"
        )
    if end is not None and vocabulary is not None and end >= vocabulary:
        raise SourceError(end, f"a vocabulary of {vocabulary} has ids up to {vocabulary - 1}", "mend end or vocabulary")


def _document_ends(path: str, ids: Array, end: int) -> npt.NDArray[np.int64]:
    """Return where each document ends: after each `end`, and at the end of the file.

    Raises:
        NeedsTooMuchMemory: there are more than the file can have: its holes read as zeros.
    """
    parts, taken = list[npt.NDArray[np.int64]](), 0
    for start in range(0, len(ids), _SCANNED):
        parts.append(np.flatnonzero(ids[start : start + _SCANNED] == end) + (start + 1))
        taken += parts[-1].nbytes
        check_claim(path, taken, "where its documents end", BLOCK_BYTES * os.stat(path).st_blocks)
    if len(ids) and ids[-1] != end:
        parts.append(np.array([len(ids)]))
    return np.concatenate([np.empty(0, np.int64), *parts])


def _packed(ends: npt.NDArray[np.int64], width: int) -> tuple[list[int], list[int]]:
    """Return where samples begin and end; one of a single id, which has nothing to predict, is none."""
    starts: list[int] = []
    stops: list[int] = []
    known = ends.data
    length, start, reached = (known[-1] if len(ends) else 0), 0, 0
    while start < length:
        fitting = bisect_right(known, start + width, reached)
        is_cut = fitting == reached
        stop = start + width if is_cut else known[fitting - 1]
        if stop - start > 1:
            starts.append(start)
            stops.append(stop)
        start, reached = (stop - 1 if is_cut else stop), fitting
    return starts, stops
