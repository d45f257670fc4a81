"""HDF5 files: those that `preprocess.convert` wrote, and others with one data set of inputs and one of targets."""

from __future__ import annotations

from typing import Any

from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.sources.arrays import ArraySource, existing
from preprocess.sources.hdf5_layout import FORMAT, ArraySplit, EncodedSplit, damage_named, open_split


def open_hdf5(
    path: str, split: str = "train", inputs: str = "inputs", targets: str = "targets", verify: bool = False
) -> ArraySource | EncodedSplit | ArraySplit:
    """Open an HDF5 file for reading.

    Args:
        path: the file.
        split: the split of a converted file: train or held_out.
        inputs: in any other file, the name of the data set of inputs, (n, ...).
        targets: in any other file, the name of the data set of targets, (n, ...); it is read into memory.
        verify: check each sample's checksum as it is read, in a converted file.
    """
    file = open_file(path)
    with damage_named(str(path), "it"):
        if file.attrs.get("format") == FORMAT:
            with file:
                return open_split(str(path), file, split, verify)
    for given, what in ((split != "train", "split"), (verify, "verify")):
        if given:
            rule = f"{what} is for converted files, and this is another HDF5 file"
            raise SourceError(path, rule, f"leave out {what}, or convert the data: fleet convert SOURCE {path}")
    return _open_foreign(path, file, inputs, targets)


def open_file(path: str) -> Any:
    """Open an HDF5 file with h5py.

    Raises:
        SourceError: it is missing or cannot be read.
    """
    import h5py  # only those who read HDF5 pay for the import

    try:
        # A file that nobody writes needs no lock, and some parallel file systems have none.
        return h5py.File(existing(path), "r", locking=False)
    except OSError as cause:
        rule = f"is not a readable HDF5 file ({cause})"
        raise SourceError(path, rule, "give one that was converted, or holds inputs and targets") from cause


def _open_foreign(path: str, file: Any, inputs: str, targets: str) -> ArraySource:
    import h5py

    for name in (inputs, targets):
        if not isinstance(file.get(name), h5py.Dataset):
            raise SourceError(name, f"{path} holds no such data set", spelling_advice(name, file.keys()))
    return ArraySource(file[inputs], file[targets][()], path)
