"""HDF5 files with one data set of inputs and one of targets."""

from __future__ import annotations

from preprocess.errors import SourceError, nearest
from preprocess.sources.arrays import ArraySource, existing

__all__ = ["open_hdf5"]


def open_hdf5(path: str, inputs: str = "inputs", targets: str = "targets") -> ArraySource:
    """Open an HDF5 file for reading.

    Args:
        path: the file.
        inputs: name of the data set of inputs, (n, ...).
        targets: name of the data set of targets, (n, ...); it is read into memory.
    """
    import h5py  # only those who read HDF5 pay for the import

    try:
        file = h5py.File(existing(path), "r")
    except OSError as cause:
        rule = f"is not a readable HDF5 file ({cause})"
        raise SourceError(path, rule, "give one that holds inputs and targets") from cause
    for name in (inputs, targets):
        if not isinstance(file.get(name), h5py.Dataset):
            raise SourceError(name, f"{path} holds no such data set", nearest(name, file.keys()))
    return ArraySource(file[inputs], file[targets][()], path)
