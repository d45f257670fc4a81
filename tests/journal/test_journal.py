"""The journal on real files."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainers
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.journal import Journal, as_json, identity_of, read_journal
from fleet.journal.run_requests import AddedJobs
from tests.trainers.support.made_checkpoints import checkpoint


def test_events_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    numbers: Any = (np.int64(1), 2)
    journal.write(events.Timed(job="a", count=2, rate=np.float64(1.5), devices=numbers))
    journal.write(events.TakenUp(job="a"))
    journal.close()
    timed, taken_up = read_journal(tmp_path / "journal.jsonl")
    assert isinstance(timed, events.Timed) and isinstance(taken_up, events.TakenUp)
    assert (timed.rate, timed.devices, taken_up.job) == (1.5, (1, 2), "a")


def test_a_torn_line_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"t": 3.0, "event": "whole"}\n{"t": 9.0, "event": "to')
    journal = Journal(path)
    journal.write(events.Session())
    journal.close()
    assert [event.event for event in read_journal(path)] == ["whole", "session"]


def write_three(path: Path) -> list[bytes]:
    """A journal of three events; returns its lines."""
    journal = Journal(path)
    for epoch in (1, 2, 3):
        journal.write(events.Pruned(job="a", epoch=epoch))
    journal.close()
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b'"epoch":2', b'"epoch":7'),
        lambda line: line.replace(b'"event":', b'"evil":'),
        lambda line: bytes(20) + line[20:],
        lambda line: line[:-2] + b"\x00\n",
        lambda line: line[:30] + b"\n",
    ],
)
def test_a_damaged_line_is_told_in_its_place(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "journal.jsonl"
    first, second, third = write_three(path)
    assert damage(second) != second
    path.write_bytes(first + damage(second) + third)
    one, warning, three = read_journal(path)
    assert isinstance(one, events.Pruned) and isinstance(three, events.Pruned) and isinstance(warning, events.Warned)
    assert (one.epoch, three.epoch, warning.damaged_line, warning.t) == (1, 3, 2, one.t)
    assert warning.text == "line 2 of the journal is damaged; what it said is left out"


def test_lines_without_checksums_are_read_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"t": 1.0, "event": "counted", "epoch": 1}\n{"t":2.0,"event":"ended","overhead_seconds":{}}\n')
    counted, ended = read_journal(path)
    assert as_json(counted) == {"t": 1.0, "unix": 0.0, "event": "counted", "epoch": 1} and ended.event == "ended"


@pytest.mark.parametrize(
    "line", [b'{"t":1.0,"event":"done","job":"a","epoch":"x"}', b'{"t":1,"event":"done"}', b'{"t":NaN,"event":"one"}']
)
def test_a_line_of_another_format_is_told_in_its_place(tmp_path: Path, line: bytes) -> None:
    """Each reader takes the keys that it needs for what they are."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"one"}\n' + line + b'\n{"event":"two"}\n')
    assert [getattr(event, "damaged_line", event.event) for event in read_journal(path)] == ["one", 2, "two"]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What was brought onto the disk: path -> its content at the time; of folders the names in them."""
    found: dict[str, bytes] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        names = " ".join(os.listdir(path)).encode() if path.is_dir() else b""
        found[str(path)] = names or path.read_bytes()

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_a_batch_that_was_chosen_outlasts_a_power_cut(tmp_path: Path, synced: dict[str, bytes]) -> None:
    """A checkpoint with another batch than the job's would be another job's."""
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write(events.Batch(job="a", batch=16))
    journal.close()
    assert b'"batch":16' in synced[str(tmp_path / "journal.jsonl")]
    assert b"journal.jsonl" in synced[str(tmp_path)]


def test_ends_of_jobs_share_a_sync_beside_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many jobs end while the disk is busy with the first: nobody waits for it, and all are there once it is closed."""
    real, begun, free, synced = os.fsync, threading.Event(), threading.Event(), []

    def fsync(descriptor: int) -> None:
        begun.set()
        assert free.wait(10.0)
        synced.append(path.read_bytes().count(b"\n"))
        real(descriptor)

    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    monkeypatch.setattr(os, "fsync", fsync)
    journal.write(events.Done(job="first", epoch=1))
    assert begun.wait(10.0)
    for number in range(20):
        journal.write(events.Done(job=f"job-{number}", epoch=1))
    free.set()
    journal.close()
    assert synced[-1] == 21 and len(synced) <= 3


def test_a_sync_that_failed_beside_the_writer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def fsync(_: int) -> None:
        failed.set()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal = Journal(tmp_path / "journal.jsonl")
    monkeypatch.setattr(os, "fsync", fsync)
    journal.write(events.Done(job="a", epoch=1))
    assert failed.wait(10.0)
    with pytest.raises(OSError, match="journal.jsonl"):
        while True:  # the thread may yet have to say so
            journal.write(events.Stopping())
    journal.close()


def test_a_best_checkpoint_is_on_the_disk_before_the_one_before_goes(tmp_path: Path, synced: dict[str, bytes]) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write(events.Checkpoint(job="a", epoch=2, path="x", best=events.Best("loss", 0.5, 2)))
    assert b'"checkpoint"' in synced[str(tmp_path / "journal.jsonl")]
    journal.close()


def test_new_folders_outlast_a_power_cut(tmp_path: Path, synced: dict[str, bytes]) -> None:
    directory = RunDirectory(tmp_path / "runs" / "one")
    directory.open()
    directory.write_run_json({})
    saved = checkpoint()
    trainers.write(directory.checkpoints("a") / trainers.file_name(saved), saved)
    AddedJobs(directory.path).offer({"name": "late"})
    assert b"runs" in synced[str(tmp_path)] and b"one" in synced[str(tmp_path / "runs")]
    assert b"checkpoints" in synced[str(directory.path)] and b"a" in synced[str(directory.path / "checkpoints")]
    assert b"offered" in synced[str(directory.path / "added")]


def test_the_clock_goes_on_where_the_last_session_ended(tmp_path: Path) -> None:
    now = [100.0]
    first = Journal(tmp_path / "journal.jsonl", clock=lambda: now[0])
    now[0] = 107.0
    assert first.write(events.Stopping()).t == 7.0
    first.close()
    now[0] = 5000.0
    second = Journal(tmp_path / "journal.jsonl", clock=lambda: now[0])
    now[0] = 5001.0
    assert second.seconds() == pytest.approx(8.0)
    second.close()


def test_listeners_hear_what_is_written_and_what_is_announced(tmp_path: Path) -> None:
    heard: list[events.Event] = []
    journal = Journal(tmp_path / "journal.jsonl")
    journal.listen(heard.append)
    journal.write(events.Stopping())
    journal.announce(events.Slowed(job="a", rate=3.0))
    journal.close()
    assert [event.event for event in heard] == ["stopping", "slowed"]
    assert [event.event for event in read_journal(tmp_path / "journal.jsonl")] == ["stopping"]


def test_no_path_no_file(tmp_path: Path) -> None:
    journal = Journal(None)
    assert journal.write(events.Stopping()).event == "stopping"
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_journal_has_no_events(tmp_path: Path) -> None:
    assert list(read_journal(tmp_path / "none.jsonl")) == []


def test_lines_are_plain_json(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write(events.Warned(text="zwei\nZeilen"))
    journal.close()
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert len(lines) == 1 and json.loads(lines[0])["text"] == "zwei\nZeilen"


def test_a_run_is_known_again_by_its_first_line_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert identity_of(path) == ""
    path.write_text('{"t":0.0,"unix":7.5,"event":"session","session":0,"of_later":1}\n')
    known = identity_of(path)
    assert known == "8272f0bca2c66bd491a3b4c358e116f2", "runs of earlier versions are known by it"
    path.write_text(path.read_text() + '{"t":1.0,"event":"stopping"}\n')
    assert identity_of(path) == known, "whatever follows"
    path.write_text(path.read_text().replace("7.5", "8.5"))
    assert identity_of(path) != known
