"""Jobs that are offered to a run that goes on: who is taken in, with which rates, and who is refused why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_TRAINER, AddJob
from fleet.journal.run_requests import AddedJobs
from fleet.session.lanes import RingPlan, ring_plan
from fleet.session.opened import SessionContext
from fleet.session.rated import rate_jobs
from fleet.session.running import TRAINED, Newcomers
from fleet.spec import EnsembleSpec
from fleet.workers.rank import Rank
from tests.journals import read_lines

Offer = Callable[..., None]


@pytest.fixture
def run(
    rehearsed: Callable[..., Rank], opening: Callable[[Rank], AbstractContextManager[SessionContext]]
) -> Iterator[SessionContext]:
    """A run of `a` and `b`, rated."""
    with opening(rehearsed()) as opened:
        rate_jobs(opened)
        yield opened


@pytest.fixture
def offer(run: SessionContext, spec: Callable[..., EnsembleSpec]) -> Offer:
    """Offer a job with these keys, and let the run look."""

    def take_in(ring: RingPlan | None = None, **keys: Any) -> None:
        job = spec({"name": "late", **keys}).jobs[0].model_dump(mode="json")
        offers(run).offer(job)
        Newcomers(run, ring or ring_plan(run.rank.runtime, 3, 1)).take_in()

    return take_in


def offers(run: SessionContext) -> AddedJobs:
    return AddedJobs(run.output.directory.path)


def last(run: SessionContext, kind: str) -> Mapping[str, Any]:
    return [event for event in read_lines(run.output.directory.journal) if event["event"] == kind][-1]


def test_a_job_that_fits_is_part_of_the_run_everywhere(run: SessionContext, offer: Offer) -> None:
    offer()
    assert "late" in run.books.ledger.jobs and "late" in run.sizes
    assert run.rank.runtime.job("late").name == "late"
    assert [job["name"] for job in offers(run).taken()] == ["late"]
    assert last(run, "job")["job"] == "late"
    told = Mailbox(run.rank.world, TO_TRAINER).receive(10.0)
    assert isinstance(told, AddJob) and told.job["name"] == "late"


def test_it_arrives_when_it_is_taken_in(run: SessionContext, offer: Offer) -> None:
    before = run.output.journal.seconds()
    offer(arrival=5.0)
    assert before + 5.0 <= run.rank.runtime.job("late").arrival <= run.output.journal.seconds() + 5.0


def test_a_job_that_no_file_knows_is_guessed_by_the_work_of_the_others(run: SessionContext, offer: Offer) -> None:
    offer()
    rates = last(run, "rates")
    assert (rates["job"], rates["source"]) == ("late", "guessed")
    assert rates["measured"] == {"1": 75.0}, "it is as large as a and b, which train 100 and 50 samples/s"


@pytest.mark.parametrize(
    ("trained", "more", "source"),
    [(TRAINED, {}, "alike"), (TRAINED - 1, {}, "guessed"), (9, {"batch_size": 2}, "guessed")],
)
def test_one_with_a_deadline_is_as_fast_as_one_alike_that_has_trained(
    run: SessionContext, offer: Offer, trained: int, more: dict[str, Any], source: str
) -> None:
    b = run.books.ledger.jobs["b"]
    run.books.ledger.added(replace(b, state=b.state.changed(epochs=trained)))
    offer(deadline=60.0, **more)
    rates = last(run, "rates")
    assert (rates["job"], rates["source"]) == ("late", source)
    assert source == "guessed" or rates["measured"] == {"1": 50.0}


def test_a_verdict_is_asked_for_a_deadline_alone_and_outlasts_the_run(run: SessionContext, offer: Offer) -> None:
    offer(deadline=60.0)
    offer(name="later")
    newcomers = Newcomers(run, ring_plan(run.rank.runtime, 3, 1))
    assert newcomers.undecided == {"late"}, "a start finds it again"
    assert last(run, "job")["due"] is None
    newcomers.decided("late", False, "there is no time")
    assert not newcomers.undecided and offers(run).decision("late") == (False, "there is no time")
    assert not Newcomers(run, ring_plan(run.rank.runtime, 3, 1)).undecided


def test_the_name_of_a_job_of_the_run_is_refused(run: SessionContext, offer: Offer) -> None:
    offer(name="a")
    assert offers(run).verdict("a") == "the run has a job of this name; choose another"
    assert "a was offered and not taken in" in last(run, "warning")["text"]


def test_a_step_that_the_ring_cannot_hold_is_refused(run: SessionContext, offer: Offer) -> None:
    offer(batch_size=2000)
    verdict = offers(run).verdict("late")
    assert verdict is not None and "its batch of 4000 samples needs a ring of 8" in verdict
    assert "late" not in run.books.ledger.jobs


def test_a_network_that_cannot_be_built_is_refused_and_the_run_goes_on(run: SessionContext, offer: Offer) -> None:
    offer(model={"name": "trainers.zoo:MLP", "arguments": {"inputs": 48, "no_such": 1}})
    verdict = offers(run).verdict("late")
    assert verdict is not None and "no_such" in verdict


def test_a_file_that_holds_no_job_is_refused(run: SessionContext) -> None:
    folder = run.output.directory.path / "added" / "offered"
    folder.mkdir(parents=True)
    (folder / "odd.json").write_text("[1, 2")
    Newcomers(run, ring_plan(run.rank.runtime, 3, 1)).take_in()
    assert offers(run).verdict("odd") == "the file holds no job; use `fleet add`"


def test_an_offer_waits_where_no_lane_is_left_for_it(run: SessionContext, offer: Offer) -> None:
    plan = ring_plan(run.rank.runtime, 3, 1)
    offer(ring=RingPlan(1, plan.samples, plan.lane_bytes, plan.slot_samples, plan.writers, plan.ahead, plan.makers))
    assert offers(run).verdict("late") is None, "nobody has said no"
    assert "late" not in run.books.ledger.jobs


def test_it_looks_at_most_once_a_second(run: SessionContext, offer: Offer, spec: Callable[..., EnsembleSpec]) -> None:
    newcomers = Newcomers(run, ring_plan(run.rank.runtime, 3, 1))
    newcomers.take_in()
    offers(run).offer(spec({"name": "late"}).jobs[0].model_dump(mode="json"))
    newcomers.take_in()
    assert "late" not in run.books.ledger.jobs


def test_a_part_of_the_run_s_data_is_taken_in(run: SessionContext, offer: Offer) -> None:
    offer(bag=0.5)
    assert last(run, "job")["samples"] == 25 and last(run, "job")["part"] == "a bag of 0.5"


def test_a_part_that_the_data_does_not_have_is_refused(run: SessionContext, offer: Offer) -> None:
    offer(subset=51)
    assert "the data set has 50 training samples; set it to at most 50" in str(offers(run).verdict("late"))


def test_a_fold_of_data_that_is_open_without_folds_is_refused(run: SessionContext, offer: Offer) -> None:
    offer(folds=2, fold=0)
    assert "add the job while the run stands still" in str(offers(run).verdict("late"))
