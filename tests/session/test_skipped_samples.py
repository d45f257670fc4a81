"""The book of samples that could not be made: each counts once, over all sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.coordination.protocol import SampleSkipped
from fleet.journal.journal import Journal, read_journal
from fleet.session.books import SkippedBook
from preprocess.samples.errors import CorruptLimitError, SkippedSample
from preprocess.samples.order import HELD_OUT, TRAIN
from tests.journals import read_lines


def skipped(sample: int, kind: str = TRAIN, stage: str = "source") -> SampleSkipped:
    named = {"data": "numbers", "kind": kind, "sample": sample, "substitute": 0, "epoch": 1, "stage": stage}
    return SampleSkipped(0, SkippedSample(**named, reason="it is broken"))  # type: ignore[arg-type]


def book(path: Path, limit: int = 9) -> SkippedBook:
    return SkippedBook(Journal(path), {"numbers": limit}, read_journal(path))


def test_a_sample_counts_once_whoever_tells_of_it(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    first = book(journal)
    for each in (skipped(3), skipped(3), skipped(3, HELD_OUT), skipped(4)):
        first.take(each)
    assert first.counts == {"numbers": 3}
    assert [line["sample"] for line in read_lines(journal)] == [3, 3, 4]


def test_the_next_session_knows_them(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    book(journal).take(skipped(3))
    later = book(journal)
    later.take(skipped(3))
    assert later.counts == {"numbers": 1}
    assert len(list(read_journal(journal))) == 1


def test_one_too_many_ends_the_run_in_this_session_and_in_the_next(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    first = book(journal, limit=1)
    first.take(skipped(3))
    with pytest.raises(CorruptLimitError, match="numbers"):
        first.take(skipped(4))
    with pytest.raises(CorruptLimitError):
        book(journal, limit=1).check("numbers")
    book(journal, limit=1).check()  # nobody reads them
    book(journal, limit=2).check("numbers", "module:Task#1")


def test_what_a_source_could_not_give_stays_skipped_what_a_transform_refused_is_tried_again(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    first = book(journal)
    for each in (skipped(7), skipped(3), skipped(5, HELD_OUT), skipped(9, stage="transform")):
        first.take(each)
    (order,) = book(journal).orders()
    assert (order.data, order.train, order.held_out) == ("numbers", (3, 7), (5,))


def test_nobody_is_told_of_refused_transforms_alone(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    book(journal).take(skipped(9, stage="transform"))
    assert book(journal).orders() == []


def test_data_that_the_spec_no_longer_has_is_forgotten(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    book(journal).take(skipped(3))
    assert SkippedBook(Journal(journal), {"other": 0}, read_journal(journal)).counts == {"other": 0}
