"""Samples that lie in arrays: the source behind `numpy`, `idx` and `hdf5`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from preprocess.samples.block_order import Indices
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array, SampleLayout


class ArraySource:
    """Samples i = (inputs[i], targets[i]) of two array-likes of equal length.

    A two-dimensional uint8 input is an image and gets one channel. Integer targets become int64.

    Attributes:
        copies_many: whether `copy` can be called.
    """

    def __init__(self, inputs: Any, targets: Any, what: str) -> None:
        if len(inputs) != len(targets):
            rule = f"has {len(inputs)} inputs and {len(targets)} targets, they must be as many"
            raise SourceError(what, rule, "give the files that belong together")
        self._inputs, self._targets = inputs, targets
        shape, dtype = tuple(inputs.shape[1:]), np.dtype(inputs.dtype)
        self._add_channel = is_plain_image(shape, dtype)
        self.copies_many = isinstance(inputs, np.ndarray) and isinstance(targets, np.ndarray)
        target_dtype = "int64" if np.dtype(targets.dtype).kind in "iub" else str(targets.dtype)
        self.layout = SampleLayout(
            (*shape, 1) if self._add_channel else shape, str(dtype), tuple(targets.shape[1:]), target_dtype
        )

    def __len__(self) -> int:
        return len(self._inputs)

    def block_starts(self) -> Indices | None:
        """Return the first sample of each chunk of a chunked HDF5 data set; None of other arrays."""
        chunks = getattr(self._inputs, "chunks", None)
        return np.arange(0, len(self), chunks[0]) if chunks else None

    def chunk_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chunks, once they are read, and of those that HDF5 keeps; 0 without chunks."""
        if not getattr(self._inputs, "chunks", None):
            return 0, 0
        return int(self._inputs.nbytes), int(self._inputs.id.get_access_plist().get_chunk_cache()[1])

    def read(self, index: int) -> tuple[Array, Any]:
        image = self._inputs[index]
        return (image[..., None] if self._add_channel else image), self._targets[index]

    def copy(self, indices: Indices, inputs: Array, targets: Array) -> None:
        """Write copies of many samples into inputs and targets of the layout, (count, ...) each."""
        images = self._inputs[indices]
        inputs[...] = images[..., None] if self._add_channel else images
        targets[...] = self._targets[indices]


def is_plain_image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Say whether a sample is an image of (height, width) without channels."""
    return len(shape) == 2 and dtype == np.uint8


def existing(path: str) -> Path:
    """Return the path of a file that exists.

    Raises:
        SourceError: there is none.
    """
    if not Path(path).is_file():
        raise SourceError(str(path), "there is no such file", f"paths are relative to {Path.cwd()}; mend the path")
    return Path(path)


def open_numpy(path: str | None = None, inputs: str = "inputs", targets: str = "targets") -> ArraySource:
    """Open NumPy files.

    Args:
        path: an .npz file that holds both arrays; without it, `inputs` and `targets` are paths of .npy files.
        inputs: name in the .npz, or path; shape (n, ...).
        targets: name in the .npz, or path; shape (n, ...).
    """
    if path is None:
        return ArraySource(open_array(inputs), open_array(targets), inputs)
    archive = open_array(path)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise SourceError(path, "is not an .npz archive", "give inputs: and targets: for two .npy files")
    with archive:
        for name in (inputs, targets):
            if name not in archive.files:
                raise SourceError(name, f"{path} holds no such array", spelling_advice(name, archive.files))
        return ArraySource(archive[inputs], archive[targets], path)


def open_array(path: str) -> Any:
    """Open an .npy file, mapped into memory, or an .npz file.

    Raises:
        SourceError: it is missing, or no such file of numbers.
    """
    try:
        return np.load(existing(path), mmap_mode="r", allow_pickle=False)
    except SourceError:
        raise
    except (ValueError, OSError, EOFError) as cause:
        rule = f"NumPy cannot read it ({cause})"
        raise SourceError(path, rule, "give an .npy or .npz file without objects") from cause
