"""Comparing what runs leave behind, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import trainers
from tests.live.support.ensembles import RunFolder
from trainers.state.tree import flatten


def final_states(run: RunFolder, jobs: tuple[str, ...]) -> dict[str, Path]:
    """Where each job's final checkpoint is, as run.json says."""
    return {job: Path(run.summary["jobs"][job]["checkpoint"]) for job in jobs}


def assert_same_bits(mine: Mapping[str, Path], theirs: Mapping[str, Path]) -> None:
    """Every job's whole state, its virtual workers' contexts and its history too, is the same to the last bit."""
    assert mine.keys() == theirs.keys()
    for job, path in mine.items():
        differing = difference(path, theirs[job])
        assert not differing, f"{job}: {path} and {theirs[job]} differ in {differing}"


def difference(mine: Path, theirs: Path) -> list[str]:
    """Names of the parts of two checkpoints that are not equal."""
    (structure, arrays), (other_structure, others) = (flatten(trainers.read(p).as_tree()) for p in (mine, theirs))
    if arrays.keys() != others.keys():
        return sorted(arrays.keys() ^ others.keys())
    found = [name for name, array in arrays.items() if not _same(array, others[name])]
    return found + (["plain values"] if structure != other_structure else [])


def _same(mine: np.ndarray, theirs: np.ndarray) -> bool:
    same_form = mine.dtype == theirs.dtype and mine.shape == theirs.shape
    return same_form and mine.tobytes() == theirs.tobytes()
