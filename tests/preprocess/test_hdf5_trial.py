"""HDF5 files over which the library itself computes for ever or crashes: they are refused, with their mend."""

from __future__ import annotations

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

from preprocess import SourceError, open_source
from preprocess.sources import checked_files as trial

HEAP_HEADER, OBJECT_HEADER = struct.Struct("<4s4xQ"), struct.Struct("<HH4xQ")


def endless(path: Path) -> Path:
    """A file of samples whose heap of strings says that nothing is free, with room left: HDF5 looks on from there."""
    with h5py.File(path, "w") as file:
        file["inputs"], file["targets"] = np.zeros((4, 3), np.uint8), np.arange(4)
        file.attrs["format"] = "some text"
    content = bytearray(path.read_bytes())
    place = content.index(b"GCOL") + HEAP_HEADER.size
    while (found := OBJECT_HEADER.unpack_from(content, place))[0] != 0:
        place += OBJECT_HEADER.size + -(-found[2] // 8) * 8
    OBJECT_HEADER.pack_into(content, place, 0, 0, 0)
    path.write_bytes(content)
    return path


@pytest.mark.timeout(120)
def test_a_file_that_keeps_the_library_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "COMPUTING_SECONDS", 1)
    with pytest.raises(SourceError, match="computes on it for more than 1 s; convert it anew"):
        open_source("hdf5", {"path": str(endless(tmp_path / "endless.h5"))})


def test_a_file_over_which_the_library_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["inputs"], file["targets"] = np.zeros((4, 3), np.uint8), np.arange(4)
    assert len(open_source("hdf5", {"path": str(path)})) == 4
    monkeypatch.setattr(trial, "_START", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(SourceError, match="the HDF5 library ends by SIGSEGV over it"):
        open_source("hdf5", {"path": str(path)})


def test_a_slow_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(b"")
    monkeypatch.setattr(trial, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(trial, "_START", "import signal; signal.pause()")
    with pytest.raises(SourceError, match=r"was not read within 0.2 s; see whether its file system answers"):
        open_source("hdf5", {"path": str(path)})
