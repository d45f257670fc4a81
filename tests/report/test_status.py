"""How a run stands, by its directory alone: live, killed, cut, and while its journal grows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.many_networks import ManyNetworks
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.journal import Journal, event_of, read_journal
from fleet.report.analysis import job_results
from fleet.report.journal_scan import NAME as SNAPSHOT
from fleet.report.journal_scan import JournalScan, Snapshots, read_snapshot
from fleet.report.run_history import build_history
from fleet.report.standing import COUNTED, Look, RunStanding
from tests.report.conftest import SimulatedRun

FEW = ManyNetworks(networks=30, epochs=3, nodes=2, devices_per_node=2, trained=0.5)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FEW.write(tmp_path_factory.mktemp("many") / "run")


def written(folder: Path, events: list[dict[str, Any]]) -> Path:
    """A directory with these events, as a journal writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "journal.jsonl", "wb") as file:
        for event in events:
            file.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
    return folder


def look(folder: Path, unix: float = 1.7e9) -> RunStanding:
    standing = Look(folder, lambda: unix).standing(whole=True)
    assert standing is not None
    return standing


def test_it_says_of_each_job_what_the_whole_journal_says(tmp_path: Path) -> None:
    events = SimulatedRun(jobs=9, failing=(2,), killed_after=4.0, seed=3, name='n"{}\u00e9').run()
    for end in range(2, len(events) + 1, 7):
        folder = written(tmp_path / str(end), events[:end])
        history = build_history(read_journal(folder / "journal.jsonl"))
        standing = look(folder)
        jobs = {job.job: job for job in standing.others}
        assert standing.running == (), "nobody writes there"
        for result in job_results(history):
            told = jobs[result.job.name]
            ended = result.status in ("done", "failed")
            assert told.status == (result.status if ended else "waiting"), (end, told)
            assert told.held == pytest.approx(result.device_seconds), (end, told)
        assert standing.device_seconds == pytest.approx(sum(span.seconds for span in history.spans))
        assert standing.seconds == pytest.approx(history.wall)


def test_what_is_guessed_anew_of_all_who_wait_is_known_of_each(tmp_path: Path) -> None:
    old = {"t": 1.0, "event": "rates", "job": "b", "source": "guessed", "measured": {"1": 100.0}, "fitted": [100.0]}
    journal = written(tmp_path / "run", [old, {"t": 2.0, "event": "guesses", "rates": {"b": 25.0, "ü": 50.0}}])
    scan = JournalScan()
    scan.read(journal / "journal.jsonl" if journal.is_dir() else journal)
    found = {job.name: event_of(job.rates) for job in scan.jobs.values()}
    assert {name: rates.fitted for name, rates in found.items() if isinstance(rates, events.Rates)} == {
        "b": (25.0,), "ü": (50.0,),
    }  # fmt: skip


def test_lines_that_come_piece_by_piece_add_up_to_the_same(few: Path, tmp_path: Path) -> None:
    content = (few / "journal.jsonl").read_bytes()
    folder, piecewise = tmp_path / "growing", JournalScan()
    folder.mkdir()
    for end in (1, 700, 701, 5000, 20_000, len(content)):
        (folder / "journal.jsonl").write_bytes(content[:end])
        piecewise.read(folder / "journal.jsonl")
    at_once = JournalScan()
    at_once.read(few / "journal.jsonl")
    assert vars(piecewise) == vars(at_once)


def test_a_snapshot_and_the_lines_behind_it_say_what_all_lines_say(few: Path, tmp_path: Path) -> None:
    content = (few / "journal.jsonl").read_bytes()
    whole = look(few)
    for end in (1, 300, 5000, 20_000, len(content) // 2, len(content)):
        journal = tmp_path / str(end) / "journal.jsonl"
        journal.parent.mkdir()
        journal.write_bytes(content[:end])
        Snapshots(journal, least=0).renew()
        journal.write_bytes(content)
        snapshot = read_snapshot(journal)
        assert snapshot is not None and snapshot.offset == content.rfind(b"\n", 0, end) + 1
        assert replace(look(journal.parent), directory="") == replace(whole, directory=""), end
        snapshot.read(journal)
        at_once = JournalScan()
        at_once.read(journal)
        assert vars(snapshot) == vars(at_once)


def test_a_snapshot_is_renewed_as_the_journal_grows_and_left_out_of_short_ones(few: Path, tmp_path: Path) -> None:
    content, journal = (few / "journal.jsonl").read_bytes(), tmp_path / "journal.jsonl"
    snapshots = Snapshots(journal, least=10_000)
    for end in (9_000, 12_000, 30_000, len(content)):
        journal.write_bytes(content[:end])
        snapshots.renew()
        snapshot = read_snapshot(journal)
        assert (snapshot is None) if end < 10_000 else (snapshot is not None and end - snapshot.offset < 2_000)


def test_a_snapshot_of_no_use_is_passed_over(few: Path, tmp_path: Path) -> None:
    content = (few / "journal.jsonl").read_bytes()
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(content)
    Snapshots(journal, least=0).renew()
    good = (tmp_path / SNAPSHOT).read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    newer = good[9:].replace(b'"format":3', b'"format":4')
    for bad in (b"", b"\n", good[:-1], bytes(flipped), b"%08x\n%s" % (zlib.crc32(newer), newer), b"\xff" * 100):
        (tmp_path / SNAPSHOT).write_bytes(bad)
        assert read_snapshot(journal) is None
        assert replace(look(tmp_path), directory="") == replace(look(few), directory="")
    (tmp_path / SNAPSHOT).write_bytes(good)
    lines = content.splitlines(keepends=True)
    for other in (content[: len(content) // 2], b"".join([*lines[:3], *lines[5:], *lines[3:5]]), b""):
        (tmp_path / "journal.jsonl").write_bytes(other)
        assert read_snapshot(journal) is None
        alone = tmp_path / "alone"
        alone.mkdir(exist_ok=True)
        (alone / "journal.jsonl").write_bytes(other)
        assert replace(look(tmp_path), directory="") == replace(look(alone), directory="")


def test_a_copy_that_lacks_its_last_lines_or_half_a_line_is_told(few: Path, tmp_path: Path) -> None:
    content = (few / "journal.jsonl").read_bytes()
    for end in (len(content) - 40, len(content) // 2, len(content) // 3, 200):
        folder = tmp_path / str(end)
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(content[:end])
        standing = look(folder)
        assert standing.state == "killed"
        assert sum(standing.counts.values()) == len(standing.others)


def test_a_run_that_goes_on_tells_who_trains_where_and_until_when(few: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(few, tmp_path / "live"))
    directory = RunDirectory(folder)
    directory.open()
    scan = JournalScan()
    scan.read(folder / "journal.jsonl")
    standing = look(folder, scan.unix + 2.0)
    assert (standing.state, standing.busy, standing.devices) == ("training", 4, 4)
    assert standing.counts == {**dict.fromkeys(COUNTED, 0), "running": 4, "waiting": 11, "done": 15}
    assert standing.waits == {"devices": 11}
    assert standing.age == pytest.approx(2.0)
    for job in standing.running:
        number = int(job.job.removeprefix("network-"))
        assert job.rate == pytest.approx(FEW.rate(number))
        assert job.source in ("epoch", "plan")
        assert job.hosts == (f"node-{job.devices[0] // 2}",)
        left = (FEW.epochs - job.epochs) * 5000 / FEW.rate(number)
        assert job.seconds is not None and left - 5000 / FEW.rate(number) - 2.0 <= job.seconds <= left
    assert standing.left is not None and standing.left > max(job.seconds or 0.0 for job in standing.running)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "starting"),
        (["session"], "measuring"),
        (["session", "planned"], "training"),
        (["session", "planned", "stopping"], "stopping"),
        (["session", "ended"], "starting"),  # that session was over before this process began
    ],
)
def test_states_of_a_run_that_is_written(tmp_path: Path, events: list[str], state: str) -> None:
    written(
        tmp_path,
        [{"t": 1.0, "unix": 1e9, "event": event, "status": "done", "overhead_seconds": {}} for event in events],
    )
    directory = RunDirectory(tmp_path)
    directory.open()
    assert look(tmp_path).state == state


@pytest.mark.parametrize("status", ["done", "failed", "stopped"])
def test_states_of_a_run_that_has_ended(tmp_path: Path, status: str) -> None:
    events = SimulatedRun(jobs=2).run()
    events[-1]["status"] = status
    assert look(written(tmp_path, events)).state == status


def test_a_writer_on_another_node_is_judged_by_its_record(few: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(few, tmp_path / "far"))
    lock = {"host": "n1", "pid": 1, "started": 1, "namespace": 1, "boot": "other", "beat": 3}
    (folder / ".lock").write_text(json.dumps(lock))
    os.utime(folder / ".lock", (1.7e9, 1.7e9))
    assert look(folder, 1.7e9 + 20).state == "training"
    standing = look(folder, 1.7e9 + 300)
    assert (standing.state, standing.writer.silent) == ("silent", pytest.approx(300))


def test_a_damaged_line_is_left_out_and_counted(few: Path, tmp_path: Path) -> None:
    lines = (few / "journal.jsonl").read_bytes().split(b"\n")
    lines[0] = lines[0].replace(b'"local"', b'"focal"')
    (tmp_path / "journal.jsonl").write_bytes(b"\n".join(lines))
    assert look(tmp_path).damaged == 1


def test_the_command_writes_nothing_and_loads_neither_torch_nor_mpi(few: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in few.rglob("*")}
    program = (
        "import sys; sys.argv = ['fleet', 'status', sys.argv[1], '--json']\n"
        "from fleet.commands.entry import main\n"
        "code = main()\n"
        "heavy = {'torch', 'mpi4py', 'numpy', 'fleet.spec', 'typer', 'pydantic'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(few)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["counts"]["done"] == 15 and told["state"] == "killed" and told["seconds_left"] > 0
    assert {path: path.stat().st_mtime_ns for path in few.rglob("*")} == before


def test_the_command_shows_a_summary_and_watches_until_the_run_is_over(few: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fleet", "status"]
    ended = subprocess.run([*command, str(few), "--watch"], capture_output=True, text=True)
    assert ended.returncode == 0 and "many was killed" in ended.stdout, ended
    assert "15 waiting, 15 done" in ended.stdout and "network-" not in ended.stdout
    ended = subprocess.run([*command, str(few), "--all"], capture_output=True, text=True)
    assert "network-00000" in ended.stdout
    ended = subprocess.run([*command, str(tmp_path / "none")], capture_output=True, text=True)
    assert ended.returncode == 2 and "holds no run" in ended.stderr


def test_a_journal_is_read_while_it_is_written(tmp_path: Path) -> None:
    journal, it = Journal(tmp_path / "journal.jsonl"), Look(tmp_path)
    for number in range(3):
        journal.write(events.Job(job=f"j{number}", samples=10, max_epochs=2))
        standing = it.standing()
        assert standing is not None and sum(standing.counts.values()) == number + 1
    journal.close()
