"""`fleet add`: jobs for a run that stands still, and for one that goes on."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import Result

from fleet.journal.lock import NAME, take
from fleet.journal.run_requests import AddedJobs, JobMapping

EXTRA = """
name: {name}
data: {data}
stop: {{epochs: 2}}
model: {{name: "trainers.zoo:MLP", arguments: {{inputs: 144, widths: [4]}}}}
optimizer: {{name: SGD, arguments: {{lr: 0.05}}}}
"""


def job_file(name: str, data: str = "pictures") -> Path:
    path = Path(f"{name}.yaml")
    path.write_text(EXTRA.format(name=name, data=data))
    return path


@contextmanager
def going_on(directory: Path, answer: Callable[[AddedJobs, JobMapping], None]) -> Iterator[None]:
    """Somebody holds the run's lock, and answers the first offer that comes."""
    added, over = AddedJobs(directory), threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            for job in added.offers().values():
                if job is not None:
                    answer(added, job)

    rank = threading.Thread(target=look)
    held = take(directory / NAME)
    rank.start()
    try:
        yield
    finally:
        over.set()
        rank.join()
        del held


def test_a_run_that_stands_still_finds_the_job_at_its_next_start(kept: Path, call: Callable[..., Result]) -> None:
    ended = call("add", kept, job_file("extra"))
    assert ended.exit_code == 0, ended.output
    assert ended.stdout == f"extra: left in {kept}; the run stands still, its next start trains them too\n"
    offered = json.loads((kept / "added" / "offered" / "extra.json").read_text())
    assert offered["stop"]["epochs"] == 2 and offered["virtual_workers"] >= 1, "all keys are written out"


def test_a_run_that_goes_on_takes_it_in(kept: Path, call: Callable[..., Result]) -> None:
    with going_on(kept, lambda added, job: added.take({**job, "arrival": 3.0})):
        ended = call("add", kept, job_file("extra"))
    assert (ended.exit_code, ended.stdout) == (0, "extra: taken in\n"), ended.output


def test_looking_whether_a_run_goes_on_keeps_no_start_out(
    kept: Path, call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(file: object, operation: int, argument: bytes) -> None:
        raise AssertionError("a start at this moment would find the directory locked")

    with going_on(kept, lambda added, job: added.take({**job, "arrival": 3.0})), monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", locked)
        ended = call("add", kept, job_file("extra"))
    assert (ended.exit_code, ended.stdout) == (0, "extra: taken in\n"), ended.output


def answering(promised: bool, why: str) -> Callable[[AddedJobs, JobMapping], None]:
    def answer(added: AddedJobs, job: JobMapping) -> None:
        added.take({**job, "arrival": 3.0})
        added.decide(job["name"], promised, why)

    return answer


def test_the_exit_code_is_the_verdict_on_a_deadline(kept: Path, call: Callable[..., Result]) -> None:
    with going_on(kept, answering(True, "")):
        yes = call("add", kept, job_file("due"), "--deadline", "60")
        again = call("add", kept, job_file("due"), "--deadline", "60")
        plain = call("add", kept, job_file("plain"))
    assert (yes.exit_code, yes.stdout) == (0, "due: taken in, and promised the deadline\n"), yes.output
    assert (again.exit_code, again.stdout) == (0, yes.stdout), "asked again, it is not added twice"
    assert (plain.exit_code, plain.stdout) == (0, "plain: taken in\n")
    with going_on(kept, answering(False, "there is no time")):
        no = call("add", kept, job_file("undue"), "--deadline", "60")
    assert (no.exit_code, no.stdout) == (1, ""), no.output
    assert no.stderr == "fleet: the deadline of undue is not promised: there is no time\n"


def test_a_verdict_that_nobody_gives_yet_has_a_code_of_its_own(kept: Path, call: Callable[..., Result]) -> None:
    still = call("add", kept, job_file("extra"), "--deadline", "2031-01-01T08:00Z")
    assert still.exit_code == 75 and "its next start trains them too" in still.stdout and "ask again" in still.stderr
    offered = json.loads((kept / "added" / "offered" / "extra.json").read_text())
    assert offered["deadline"] == "2031-01-01T08:00:00+00:00"
    with going_on(kept, lambda added, job: None):
        slow = call("add", kept, job_file("extra"), "--deadline", "2031-01-01T08:00Z", "--wait", "0.2")
    assert slow.exit_code == 75 and "rank 0 has not answered for 0.2 s" in slow.stdout
    wrong = call("add", kept, job_file("other"), "--deadline", "soon")
    assert wrong.exit_code == 2 and "'soon' is no time; write it as 2026-12-01T08:00" in wrong.stderr


def test_a_refusal_is_told_with_its_reason(kept: Path, call: Callable[..., Result]) -> None:
    with going_on(kept, lambda added, job: added.refuse(job["name"], "its samples are too large")):
        ended = call("add", kept, job_file("extra"))
    assert ended.exit_code == 2 and ended.stdout == ""
    assert ended.stderr == "fleet: job extra was refused: its samples are too large\n"


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("long", "pictures", "the run has a job of this name"),
        ("late", "pictures", "the run has a job of this name"),  # it was added before
        ("extra", "sounds", "sounds"),
    ],
)
def test_a_job_that_does_not_fit_is_refused_before_it_is_left(
    name: str, data: str, told: str, kept: Path, call: Callable[..., Result]
) -> None:
    ended = call("add", kept, job_file(name, data))
    assert ended.exit_code == 2 and told in ended.stderr, ended.output
    assert not list((kept / "added").glob("offered/*"))


def test_a_folder_without_a_run_is_told_what_to_name(tmp_path: Path, call: Callable[..., Result]) -> None:
    ended = call("add", tmp_path, "extra.yaml")
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"fleet: {tmp_path} holds no run that was started: there is no ensemble.json")
