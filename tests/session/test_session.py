"""The stages of a session on rank 0: what each leaves on disk, and what the next session takes up."""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_PREPROCESSOR, TO_TRAINER, SetBatch, SkipSamples
from fleet.journal.directory import DirectoryHeldError, RunDirectory
from fleet.journal.lock import NAME, Holder
from fleet.journal.run_requests import AddedJobs
from fleet.machine.launch.launched import DONE, STOPPED
from fleet.session.books import output_to
from fleet.session.coordinator_rank import run_session
from fleet.session.opened import OvertakenError, SessionContext, kept, make_ready, open_run
from fleet.session.options import RunOptions
from fleet.session.rank_messages import Broadcast
from fleet.session.rated import rate_jobs
from fleet.workers.agreement import BadInput
from fleet.workers.rank import Rank
from tests.journals import read_lines

OPTIONS = RunOptions(Path("spec.yaml"))

Ranks = Callable[..., Rank]
Opening = Callable[[Rank], AbstractContextManager[SessionContext]]
Wires = Callable[[Rank], Broadcast]
Leave = Callable[..., None]


@pytest.fixture
def leave(opening: Opening) -> Leave:
    """Be an earlier session, that has opened the run and written these lines."""

    def write(me: Rank, *lines: dict[str, Any]) -> None:
        with opening(me):
            pass
        gc.collect()  # with what was opened, the directory's lock goes
        with me.directory.journal.open("a") as journal:
            journal.writelines(json.dumps({"t": 1.0, **line}) + "\n" for line in lines)

    return write


def events(directory: RunDirectory, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_lines(directory.journal) if event["event"] == kind]


def test_a_run_that_is_ready_has_written_its_spec_and_no_journal(rehearsed: Ranks) -> None:
    ready = make_ready(rehearsed(), OPTIONS)
    assert ready.directory.spec.exists() and not ready.directory.journal.exists()
    assert set(ready.sizes) == {"a", "b"}


def test_a_run_without_a_rate_is_not_begun(rehearsed: Ranks) -> None:
    me = rehearsed({"name": "a"}, {"name": "unknown"})
    with pytest.raises(BadInput, match="there is none for unknown"):
        make_ready(me, OPTIONS)
    assert not me.directory.journal.exists()


def test_a_second_run_is_kept_out_of_the_directory(rehearsed: Ranks) -> None:
    ready = make_ready(rehearsed(), OPTIONS)
    with pytest.raises(DirectoryHeldError, match="another run is writing there now"):
        make_ready(rehearsed(resources={"lock_wait": 0}), OPTIONS)
    assert ready.directory.spec.exists()


def test_a_job_that_was_taken_in_meanwhile_is_not_left_out(rehearsed: Ranks) -> None:
    me = rehearsed()
    AddedJobs(me.directory.path).take({"name": "late", "arrival": 1.0})
    with pytest.raises(OvertakenError, match="late: taken in by the run while this start waited"):
        make_ready(me, OPTIONS)


def test_a_run_whose_directory_another_has_taken_goes_no_further(rehearsed: Ranks, wire: Wires) -> None:
    me = rehearsed()
    ready, mine = make_ready(me, OPTIONS), wire(me)
    with kept(ready.directory, mine, beat=0.01):
        other = replace(Holder.own(), host="far", boot="another")
        (me.directory.path / NAME).write_text(json.dumps(asdict(other)))
        box = Mailbox(me.world, TO_TRAINER)
        assert box.receive(30.0, until=lambda: mine.failure() is not None) is None
    assert isinstance(mine.failure(), OvertakenError), mine.failure()


def test_an_opened_run_has_said_what_it_is(rehearsed: Ranks, opening: Opening) -> None:
    me = rehearsed()
    with opening(me):
        pass
    kinds = [event["event"] for event in read_lines(me.directory.journal)]
    assert kinds == ["session", "cluster", "job", "job", "fingerprints"]
    (session,) = events(me.directory, "session")
    assert (session["session"], session["policy"], session["rehearsal"]) == (0, "flotilla", {"time_scale": 1.0})
    assert [job["max_epochs"] for job in events(me.directory, "job")] == [3, 3]


def test_the_next_session_counts_on(rehearsed: Ranks, leave: Leave, opening: Opening) -> None:
    leave(rehearsed())
    me = rehearsed()
    with opening(me) as second:
        assert second.books.ledger.sessions == 1
    assert [event["session"] for event in events(me.directory, "session")] == [0, 1]


def test_a_damaged_line_of_the_journal_is_told_at_the_next_start(
    rehearsed: Ranks, leave: Leave, wire: Wires, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(rehearsed(), {"event": "planned", "round": 0, "allocation": {}})
    me = rehearsed()
    damaged = me.directory.journal.read_text().replace('"policy":"flotilla"', '"policy":"flotill "')
    me.directory.journal.write_text(damaged)
    ready = make_ready(me, OPTIONS)
    with output_to(ready.directory, 2) as output:
        open_run(ready, wire(me), output)
    assert "line 1 of the journal is damaged" in capsys.readouterr().out


def test_other_trainers_than_the_spec_s_are_told_of(rehearsed: Ranks, opening: Opening) -> None:
    me = rehearsed(resources={"trainers": 3})
    with opening(me):
        pass
    (warning,) = events(me.directory, "warning")
    assert warning["text"] == "the spec asks for 3 trainers, the launcher started ranks for 1: 1 train"


def test_what_the_journal_knows_of_samples_and_batches_is_told_to_the_ranks(
    rehearsed: Ranks, leave: Leave, opening: Opening
) -> None:
    job = {"name": "a", "batch_range": [4, 16]}
    policy = {"policy": {"name": "throughput"}}
    skipped = {"data": "numbers", "kind": "train", "sample": 7, "substitute": 8, "epoch": 0, "reason": "it is broken"}
    leave(
        rehearsed(job, **policy),
        {"event": "batch", "job": "a", "batch": 16},
        {"event": "skipped", "stage": "source", **skipped},
    )
    me = rehearsed(job, **policy)
    with opening(me) as run:
        ledger = run.books.ledger
    assert me.runtime.job("a").batch_size == 8, "16 samples over two virtual workers"
    assert ledger.jobs["a"].batches is None, "it is chosen for good"
    assert Mailbox(me.world, TO_TRAINER).receive(10.0) == SetBatch("a", 8)
    assert Mailbox(me.world, TO_PREPROCESSOR).receive(10.0) == SkipSamples("numbers", (7,), ())


def test_a_rated_run_has_a_curve_of_each_job(rehearsed: Ranks, opening: Opening) -> None:
    me = rehearsed()
    with opening(me) as run:
        rate_jobs(run)
    jobs = run.books.ledger.jobs.values()
    assert {job.name: float(job.curve(1)) for job in jobs if job.curve} == {"a": 100.0, "b": 50.0}
    assert [event["source"] for event in events(me.directory, "rates")] == ["file", "file"]
    assert not me.directory.profile.exists(), "a rehearsal measures nothing"


def test_a_rehearsals_preprocessors_are_as_fast_as_its_spec_says(rehearsed: Ranks, opening: Opening) -> None:
    me = rehearsed(fed={1: 70.0})
    with opening(me) as run:
        rate_jobs(run)
    jobs = run.books.ledger.for_policy(0.0).by_name
    assert {name: job.rate(1) for name, job in jobs.items()} == {"a": 70.0, "b": 50.0}
    (line,) = events(me.directory, "preprocessors")
    assert (line["counts"], line["of_data"], line["chosen"]) == ({"1": 70.0}, {"numbers": 70.0}, 1)
    assert line["demand"] == 100.0, "what the networks could eat of one stream"


def test_a_run_that_is_asked_to_stop_before_it_trains_can_go_on(rehearsed: Ranks, wire: Wires) -> None:
    me = rehearsed()
    me.stop.raised = True
    with redirect_stdout(io.StringIO()) as said:
        assert run_session(me, OPTIONS, wire(me)) == STOPPED
    assert json.loads(me.directory.run_json.read_text())["status"] == "stopped"
    assert "stopped" in said.getvalue()


def test_a_session_whose_jobs_are_done_already_reports_and_ends_well(
    rehearsed: Ranks, leave: Leave, wire: Wires
) -> None:
    leave(rehearsed(), *({"event": "done", "job": job, "epoch": 3} for job in ("a", "b")))
    me = rehearsed()
    with redirect_stdout(io.StringIO()) as said:
        assert run_session(me, OPTIONS, wire(me)) == DONE
    assert "2 of 2 networks done" in said.getvalue()
    assert (me.directory.path / "report.html").exists()
