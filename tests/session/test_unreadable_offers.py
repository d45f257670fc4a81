"""Files of added jobs that the system cannot read now."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.coordination.failures import StorageError, storage
from fleet.journal.run_requests import AddedJobs

JOB = {"name": "late", "arrival": 1.0}


def unreadable(path: Path) -> None:
    """A link to itself, of which the system says that it cannot be followed."""
    path.unlink()
    path.symlink_to(path)


def test_an_offer_that_cannot_be_read_waits(tmp_path: Path) -> None:
    jobs = AddedJobs(tmp_path)
    jobs.offer(JOB)
    unreadable(tmp_path / "added" / "offered" / "late.json")
    assert jobs.offers() == {}


def test_no_run_begins_without_a_job_of_its_own_that_cannot_be_read(tmp_path: Path) -> None:
    jobs = AddedJobs(tmp_path)
    jobs.take(JOB)
    unreadable(tmp_path / "added" / "taken" / "late.json")
    with pytest.raises(StorageError, match=r"late\.json: Too many levels of symbolic links"), storage():
        jobs.taken()
