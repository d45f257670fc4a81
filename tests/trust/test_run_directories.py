"""Run directories that others have made or changed: nothing hangs, fills the memory, or is written elsewhere."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.journal.directory import RunDirectory, RunDirectoryError
from fleet.journal.journal import MOST_LINE_BYTES, Journal, read_journal
from fleet.journal.run_requests import AddedJobs
from fleet.journal.work_note import WorkNote, take_deaths
from fleet.report.journal_scan import NAME, JournalScan, write_snapshot
from fleet.report.metrics_file import MetricsFile
from fleet.report.standing import Look
from fleet.report.tracking import EventFile
from fleet.workers.watchdog import stuck_ranks
from preprocess.files.reading import NotAFile
from preprocess.files.writing import LaidByOthers
from tests.report.conftest import SimulatedRun

OTHER = 12345  # a user whom nobody is
SECONDS = 120  # for a command; a busy machine takes some


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link(path: Path) -> None:
    path.symlink_to(path.parents[1] / "victim")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def deep(path: Path) -> None:
    path.write_text("[" * 300_000)


def other_json(path: Path) -> None:
    path.write_text('[{"a": [1]}]')


LAID: list[Callable[[Path], None]] = [pipe, device, link, sparse, deep, other_json]
READ = ("journal.jsonl", "spec.json", ".lock", NAME, "run.json", "ensemble.json")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run, beside a file that is nobody else's to write."""
    (tmp_path / "victim").write_text("precious")
    directory = tmp_path / "run"
    directory.mkdir()
    lines = (json.dumps(event, separators=(",", ":")) + "\n" for event in SimulatedRun(jobs=3, epochs=2).run())
    (directory / "journal.jsonl").write_text("".join(lines))
    (directory / "spec.json").write_text("{}")
    return directory


def told(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command that reads a run directory: it ends soon, with 0 or 2, without a traceback."""
    command = [sys.executable, "-m", "fleet", *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    assert ended.returncode in (0, 2) and "Traceback" not in ended.stderr, ended.stderr
    return ended


@pytest.mark.parametrize("lay", LAID)
@pytest.mark.parametrize("name", READ)
def test_status_answers_or_names_the_file(run: Path, name: str, lay: Callable[[Path], None]) -> None:
    (run / name).unlink(missing_ok=True)
    lay(run / name)
    ended = told("status", run, "--json", "--all")
    assert name != "journal.jsonl" or lay not in (pipe, device) or str(run / name) in ended.stderr
    assert (run.parent / "victim").read_text() == "precious"


@pytest.mark.parametrize("lay", LAID)
@pytest.mark.parametrize("name", ["report.html", "spec.json", "journal.jsonl"])
def test_a_report_is_made_or_names_the_file(run: Path, name: str, lay: Callable[[Path], None]) -> None:
    (run / name).unlink(missing_ok=True)
    lay(run / name)
    told("report", run)
    assert (run.parent / "victim").read_text() == "precious"


@pytest.mark.parametrize("lay", [pipe, device, link])
def test_a_run_begins_in_no_directory_with_such_files(run: Path, lay: Callable[[Path], None]) -> None:
    """A journal or a lock of that kind is named; nothing is written through it."""
    lay(run / ".lock")
    with pytest.raises(RunDirectoryError, match=r"\.lock: is a"):
        RunDirectory(run).open()
    (run / "journal.jsonl").unlink()
    lay(run / "journal.jsonl")
    with pytest.raises((LaidByOthers, NotAFile), match="is a"):
        Journal(run / "journal.jsonl")
    assert (run.parent / "victim").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make links of other users")
def test_a_directory_in_which_others_laid_links_to_what_is_not_theirs_is_refused(run: Path) -> None:
    (run / "checkpoints").symlink_to(run.parent)
    os.lchown(run / "checkpoints", OTHER, OTHER)
    with pytest.raises(RunDirectoryError, match=f"checkpoints: is a link that user {OTHER} laid"):
        RunDirectory(run).open()


def test_a_spec_that_is_damaged_is_told_in_a_sentence(run: Path) -> None:
    for text in ("[]", "{", '{"jobs": [1]}', '{"jobs": {"a": 1}}', '{"determinism": 1}'):
        (run / "spec.json").write_text(text)
        with pytest.raises(RunDirectoryError, match="spec.json: .*; bring it back from a copy"):
            RunDirectory(run).read_spec()


# journals


def test_a_line_without_end_is_a_damaged_line(run: Path) -> None:
    journal = run / "journal.jsonl"
    before, lines = list(read_journal(journal)), len(journal.read_text().splitlines())
    with open(journal, "ab") as file:
        file.write(b'{"t":1,"event":"warning","text":"' + b"x" * (2 * MOST_LINE_BYTES + 5) + b'"}\n')
        file.write(b'{"t":1e3,"event":"warning","text":"after","job":null}\n')
    *same, damaged, after = read_journal(journal)
    assert same == before and (damaged.damaged_line, after.text) == (lines + 1, "after")  # type: ignore[attr-defined]
    scan = JournalScan()
    scan.read(journal)
    assert (scan.damaged, scan.now, scan.offset) == (1, 1e3, journal.stat().st_size)


def test_a_hole_of_a_terabyte_is_not_read_through(run: Path) -> None:
    journal = run / "journal.jsonl"
    before = list(read_journal(journal))
    os.truncate(journal, 1 << 40)
    *same, damaged = read_journal(journal)
    assert same == before and damaged.event == "warning"
    standing = Look(run).standing()
    assert standing is not None and standing.damaged == 1


def test_a_journal_is_read_in_pieces(run: Path) -> None:
    """1 GB of lines is read in an address space that has no room for half of it."""
    code = """
import resource, sys, pathlib
from fleet.journal.journal import read_journal
from fleet.report.journal_scan import JournalScan
resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))
path = pathlib.Path(sys.argv[1])
assert sum(1 for _ in read_journal(path)) == 64
JournalScan().read(path)
"""
    journal = run / "journal.jsonl"
    line = b'{"t":1,"event":"warning","text":"' + b"x" * (8 << 20) + b'"}\n'
    with open(journal, "wb") as file:
        for _ in range(64):
            file.write(line)
    command = [sys.executable, "-c", code, str(journal)]
    subprocess.run(command, check=True, timeout=SECONDS, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})


@pytest.mark.parametrize(
    "event",
    [
        {"event": "cluster", "ranks": [], "devices_per_node": [300_000_000]},
        {"event": "started", "job": "net-0", "devices": [10**12], "epoch": 0, "step": 0},
        {"event": "rates", "job": "net-0", "measured": {"99999999999": 1.0}},
        {"event": "job", "job": "net-0", "virtual_workers": 2**50},
        {"event": "planned", "allocation": {"net-0": [2**40]}},
        {"event": "job", "job": "net-0", "deadline": 10**400},
    ],
)
def test_numbers_that_no_run_has_are_damage(run: Path, event: dict[str, Any]) -> None:
    line = json.dumps({"t": 5.0, **event}).encode()
    sealed = line[:-1] + b',"crc":"%08x"}' % zlib.crc32(line)
    with open(run / "journal.jsonl", "ab") as file:
        file.write(sealed + b"\n")
    assert getattr(list(read_journal(run / "journal.jsonl"))[-1], "damaged_line", None)
    told("status", run, "--all")


def test_a_state_of_another_version_is_told_as_it_stands(run: Path) -> None:
    journal = run / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"status":"done"', '"status":"folded"'))
    assert "folded" in told("status", run).stdout


def test_very_many_sessions_are_read_soon(run: Path) -> None:
    """Each would have had the lines before it copied: half an hour of work."""
    with open(run / "journal.jsonl", "ab") as file:
        file.write(b'{"t":1,"event":"session"}\n' * 300_000)
    limit = resource.getrlimit(resource.RLIMIT_CPU)
    code = "import sys, pathlib; from fleet.report.journal_scan import JournalScan; s = JournalScan()\n"
    code += "import resource; resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
    code += "s.read(pathlib.Path(sys.argv[1])); print(s.sessions)"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(run / "journal.jsonl")], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "300001\n" and limit == resource.getrlimit(resource.RLIMIT_CPU)


@pytest.mark.parametrize(
    "change",
    [
        {"now": "x"}, {"begin": None}, {"session": [1]}, {"cluster": {"ranks": 1}},
        {"energy": {"jobs": {"a": "x"}, "idle": 0, "sources": ["rapl"]}},
        {"jobs": [["a", "a", "running", 0, ["x"], 0, "", "", "", "", "", "", "", ""]]},
    ],
)  # fmt: skip
def test_a_snapshot_that_cannot_be_is_none(run: Path, change: dict[str, Any]) -> None:
    scan = JournalScan()
    scan.read(run / "journal.jsonl")
    write_snapshot(run / "journal.jsonl", scan)
    content = json.loads((run / NAME).read_bytes().partition(b"\n")[2])
    text = json.dumps({**content, **change})
    (run / NAME).write_text(f"{zlib.crc32(text.encode()):08x}\n{text}")
    standing = Look(run).standing(whole=True)
    assert standing is not None and standing.counts["done"] == 3


# what runs write


def test_metrics_are_written_through_no_link(run: Path) -> None:
    row = {"job": "a", "epoch": "1", "step": "1", "time": "0", "rate": "1", "devices": "0"}
    (run / "metrics.csv").symlink_to("../victim")
    file = MetricsFile(run / "metrics.csv")
    file.put(row, {"loss": "1"})
    (run / "metrics.csv").unlink()
    (run / "metrics.csv").symlink_to("../victim")
    with pytest.raises(LaidByOthers, match="is a link"):
        file.put({**row, "epoch": "2"}, {"loss": "1"})
    file.put({**row, "epoch": "3"}, {"loss": "1"})
    rows = (run / "metrics.csv").read_text()
    assert rows.count("\na,") == 2 and "a,2," in rows, "the next row writes the file anew, with what was not written"
    assert (run.parent / "victim").read_text() == "precious"


@pytest.mark.parametrize("lay", [pipe, device, sparse])
def test_metrics_that_are_no_file_are_set_aside(run: Path, lay: Callable[[Path], None]) -> None:
    lay(run / "metrics.csv")
    MetricsFile(run / "metrics.csv")
    assert os.path.lexists(run / "metrics.csv.old") and not os.path.lexists(run / "metrics.csv")


def test_tensorboard_s_files_are_new_ones(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("fleet.report.tracking.time.time", lambda: 1e9)
    monkeypatch.setattr("fleet.report.tracking._NUMBERS", iter([0, 0, 1]))
    EventFile(run / "board", 0).close()
    (found,) = (run / "board").iterdir()
    found.unlink()
    found.symlink_to(run.parent / "victim")
    with pytest.raises(FileExistsError):
        EventFile(run / "board", 0)
    EventFile(run / "board", 0).close()
    assert (run.parent / "victim").read_text() == "precious"


def test_notes_and_stacks_are_written_through_no_link(run: Path) -> None:
    for folder in ("at_work", "stacks"):
        (run / folder).mkdir()
        (run / folder / "rank-1.txt").symlink_to(run.parent / "victim")
        (run / folder / "rank-x.txt").write_text("job\nstack")
        pipe(run / folder / "rank-2.txt")
    with WorkNote(run / "at_work", 1).of("a"):
        assert (run.parent / "victim").read_text() == "precious"
    assert take_deaths(run / "at_work", [2]) == [] and stuck_ranks(run / "stacks") == {1: "precious"}
    (run / "at_work" / "rank-1.txt").unlink(missing_ok=True)
    assert take_deaths(run / "at_work") == []


def test_an_offer_that_is_no_file_is_refused_by_name(run: Path) -> None:
    added = AddedJobs(run)
    added.offer({"name": "good"})
    for lay in (pipe, device, sparse, deep):
        lay(run / "added" / "offered" / f"{lay.__name__}.json")
    offers = added.offers()
    assert [name for name, job in offers.items() if job is None] == ["deep", "device", "pipe", "sparse"]
