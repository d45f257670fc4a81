"""NetCDF-4 files, which are HDF5 files: windows of their variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preprocess.files.reading import open_file
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.sources.arrays import existing
from preprocess.sources.checked_files import bounded, damage_named, try_in_time
from preprocess.sources.hdf5 import check_rows, refuse_elsewhere
from preprocess.sources.hdf5 import open_file as open_hdf5_file
from preprocess.sources.windows import MEND, WindowArguments, WindowSource


def open_netcdf(
    path: str,
    inputs: str | Sequence[str],
    targets: str | Sequence[str],
    window: int = 1,
    lead: int = 1,
    target_window: int = 1,
    stride: int = 1,
    dtype: str | None = None,
    fill: float | None = None,
    cache: float = 512,
) -> WindowSource:
    """Open a NetCDF-4 file.

    Args:
        path: the file.
        inputs, targets, window, lead, target_window, stride, dtype, fill, cache: see `WindowArguments`; a variable in
            a group is called GROUP/NAME.

    Raises:
        SourceError: the file is missing, damaged or of another format, or the arguments do not fit it.
    """
    _refuse_classic(path)
    given: dict[str, Any] = {
        "window": window,
        "lead": lead,
        "target_window": target_window,
        "stride": stride,
        "dtype": dtype,
    }
    given |= {"inputs": inputs, "targets": targets, "fill": fill, "cache": cache}
    try_in_time("HDF5", __name__, str(existing(path)), **given)
    return _opened(path, **given)


def try_as_told(told: str) -> None:
    """In a process of its own: open a file with `open_netcdf`'s arguments, as JSON, and read a little of it."""
    bounded(_opened, told)


def _opened(path: str, **given: Any) -> WindowSource:
    return WindowSource(str(path), _variables, WindowArguments(**given))


def _refuse_classic(path: str) -> None:
    with open_file(existing(path)) as file:
        if file.read(3) == b"CDF":
            rule = "is a NetCDF file of the classic format, and only NetCDF-4 is read"
            raise SourceError(path, rule, f"convert it: nccopy -k netCDF-4 {path} new.nc")


def _variables(path: str, names: Sequence[str]) -> Mapping[str, Any]:
    import h5py

    file = open_hdf5_file(path)
    with damage_named(path, "it", mend=MEND):
        refuse_elsewhere(path, file, "copy the variables into one file", *names)
        for name in names:
            if not isinstance(file.get(name), h5py.Dataset):
                known = [key for key in file if isinstance(file.get(key), h5py.Dataset)]
                raise SourceError(name, f"{path} holds no such variable", spelling_advice(name, known))
            check_rows(path, file[name], file[name].chunks[0] if file[name].chunks else 1)
        return {name: file[name] for name in names}
