"""Fuzzed readers of a run directory: its journal, on the way to the report and to a later session, and its messages."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fleet.coordination.job_record import UNRATED, JobRecord
from fleet.coordination.live_state import LiveState, recall, run_summary
from fleet.coordination.protocol import MESSAGES
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.journal import Journal, read_journal
from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import EnsembleFile
from fleet.report.live import PlainView
from fleet.report.run_history import read_history
from fleet.report.run_page import render
from fleet.report.tracking import Tracking
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.session.books import SkippedBook
from fleet.simulator.traces import TraceError, read_trace
from tests.faults.fuzz.targets import Target
from tests.faults.fuzz.text_targets import constant
from tests.journals import as_event
from tests.report.conftest import SimulatedRun

OLD_RUNS = Path(__file__).parents[2] / "live" / "old_runs"
_SEAL = re.compile(rb',"crc":"([^"]*)"\}$')


def resealed(content: bytes) -> bytes:
    """A journal each of whose lines that have a checksum has the right one."""
    return b"\n".join(map(_resealed, content.split(b"\n")))


def _resealed(line: bytes) -> bytes:
    seal = _SEAL.search(line)
    if seal is None:
        return line
    content = line[: seal.start()] + b"}"
    return b'%s,"crc":"%08x"}' % (content[:-1], zlib.crc32(content))


def _journals(folder: Path) -> Iterator[bytes]:
    """Journals of old runs, and of made ones, each event at least once."""
    for name in ("checksums", "unsealed"):
        lines = (OLD_RUNS / name / "stopped" / "journal.jsonl").read_bytes().split(b"\n")
        yield b"\n".join(_first_of_each(lines))
    journal = Journal(folder / "made.jsonl")
    for line in SimulatedRun(jobs=2, epochs=2, failing=(1,)).run():
        journal.write(as_event(line))
    journal.write(events.RanksLost(ranks=(2,), devices=(1,), hosts=("h",)))
    journal.write(events.Warned(text="w"))
    journal.write(
        events.Skipped(data="digits", kind="train", sample=3, substitute=4, epoch=0, stage="source", reason="r", rank=0)
    )
    journal.close()
    yield (folder / "made.jsonl").read_bytes()


def _first_of_each(lines: Sequence[bytes], count: int = 2) -> list[bytes]:
    kinds: dict[str, list[bytes]] = {}
    for line in filter(None, lines):
        kinds.setdefault(json.loads(line)["event"], []).append(line)
    return [line for same in kinds.values() for line in same[:count]]


def corpus(folder: Path) -> Sequence[bytes]:
    """Whole journals, and single lines of them."""
    *old, made = _journals(folder)
    return [*old, made, *_first_of_each(made.split(b"\n"), 1)]


def _put(content: bytes, folder: Path) -> Path:
    path = folder / "journal.jsonl"
    path.write_bytes(resealed(content))
    return path


def _report(content: bytes, folder: Path) -> Any:
    """All that people see of a journal: the page, the lines, the metrics."""
    path = _put(content, folder)
    page = render(read_history(path), "run")
    page.encode()
    view, tracking = PlainView(Console(file=io.StringIO())), Tracking(folder, tensorboard=False)
    for event in read_journal(path):
        view.event(event)
        tracking.take(event)
    return len(page)


def _resume(content: bytes, folder: Path) -> Any:
    """All that a later session takes from it."""
    path = _put(content, folder)
    names = {str(getattr(event, "job", None)) for event in read_journal(path)}
    jobs = [JobState(name, UNRATED, 2, batch=10, remaining=300, epoch=100) for name in sorted(names)]
    ledger = LiveState(Cluster((2,)), [JobRecord.of(job, "data/0", None) for job in jobs], seed=0)
    recall(ledger, read_journal(path))
    journal = Journal(path)
    book = SkippedBook(journal, {"digits": 9}, read_journal(path))
    orders = [MESSAGES.decode(MESSAGES.encode(order)) for order in book.orders()]
    journal.write(events.Session(session=ledger.sessions))
    journal.close()
    directory = RunDirectory(folder)
    directory.write_run_json(run_summary(ledger, ledger.status, "flotilla", 1.0))
    return orders, directory.progress(), json.loads(directory.run_json.read_text())


def _trace(content: bytes, folder: Path) -> Any:
    return read_trace(_put(content, folder))


def _messages(folder: Path) -> Sequence[bytes]:
    return [
        b'StopGroup\n{"job": "a", "why": "policy"}',
        b'EpochEnded\n{"job": "a", "epoch": 1, "step": 2, "seconds": 1.5, "rate": NaN, "metrics": {"loss": Infinity}, '
        b'"learning_rate": 0.1, "waited_data": [0.1], "waited_peers": [0.2], "computed": [1], "deaf": 0.0}',
        b'AddJob\n{"job": {"name": "a", "stop": {"epochs": 2}}}',
    ]


def _offers(content: bytes, folder: Path) -> Any:
    (folder / "added/offered").mkdir(parents=True)
    (folder / "added/taken").mkdir()
    for kind in ("offered", "taken"):
        (folder / f"added/{kind}/late.json").write_bytes(content)
    added = AddedJobs(folder)
    return added.at_start(3.0, lambda job: True), added.names(), added.verdict("late")


ENSEMBLE = '{"folder": "/x", "spec": {"name": "n"}, "lengths": {"d": [64, null], "e": [64, 8]}}'

TARGETS = (
    Target("journal to report", corpus, _report, ()),
    Target("journal to next session", corpus, _resume, ()),
    Target("journal as trace", lambda folder: list(_journals(folder)), _trace, (TraceError,)),
    Target("messages", _messages, lambda content, folder: MESSAGES.decode(content), (ValueError,)),
    Target("offered jobs", constant('{"name": "late", "arrival": 3.5}'), _offers, ()),
    Target(
        "ensemble file",
        constant(ENSEMBLE),
        lambda content, folder: ((folder / "ensemble.json").write_bytes(content), EnsembleFile.read(folder)),
        (),
    ),
)
