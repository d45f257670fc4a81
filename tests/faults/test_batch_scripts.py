"""Batch scripts under signals: a job is submitted again if, and only if, there is work left; and never for ever."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.support.batch_jobs import IGNORES, JOB_IDS, BatchSite, JobEnd, wait_until_there

FIRST = 4  # commands before it set the script's variables and traps
WORDS = ("0", "1", "2", "70", "75", "none", "bad")
slow = pytest.mark.slow
SLOW_SITES = [pytest.param(site, marks=slow) for site in JOB_IDS if site != "pbs"]
SLOW_WORDS = [pytest.param(word, marks=slow) for word in WORDS if word not in ("75", "0")]


def work_is_left(ended: JobEnd) -> bool:
    """Whether the ranks, or their launcher, have not said that it is over."""
    return ended.word not in ("0", "1", "2") and ended.code != 2


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> BatchSite:
    return BatchSite(request.param, tmp_path)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("site", JOB_IDS, indirect=True)
def test_a_job_is_submitted_again_if_work_is_left(site: BatchSite, word: str) -> None:
    ended = site.run(word)
    assert ended.submitted == work_is_left(ended), ended.output
    assert ended.code == {"none": 70, "bad": 2}.get(word) or str(ended.code) == word, ended.output
    starts = [path.name for path in site.folder.glob("x.sh.*")]
    assert starts == (["x.sh.1.starts"] if ended.submitted else []), "what a job notes for itself goes with it"


@pytest.mark.parametrize("word", ["75", "0", *SLOW_WORDS])
@pytest.mark.parametrize("name", ["USR1", "TERM"])
@pytest.mark.parametrize("site", ["pbs", *SLOW_SITES], indirect=True)
@pytest.mark.timeout(600)
def test_a_signal_at_any_command(site: BatchSite, name: str, word: str) -> None:
    commands = site.signalled(word, name, 0).commands
    deaf = commands.index(IGNORES) + 1
    for at in range(FIRST, len(commands) + 1):
        ended = site.signalled(word, name, at)
        told = f"{name} at {at}, {commands[at - 1]}: code {ended.code}, word {ended.word!r}\n{ended.output}"
        over = name == "TERM" and at <= deaf
        assert ended.submitted == (work_is_left(ended) and not over), told
        if not ended.word:  # the ranks were ended as they started, or were lost
            assert ended.code in (75, {"bad": 2}.get(word, 70)), told


@pytest.mark.parametrize("name", ["USR1", "TERM"])
@pytest.mark.parametrize("site", ["pbs", *SLOW_SITES], indirect=True)
def test_ranks_that_are_up_are_told(site: BatchSite, name: str) -> None:
    with site.started("asked", "7") as (process, own):
        wait_until_there(Path(f"{site.script}.7.code.up"))
        process.send_signal(signal.Signals[f"SIG{name}"])
        ended = site.finish(process, own)
    assert (ended.code, ended.word, ended.submitted) == (75, "75", name == "USR1"), ended.output


@pytest.mark.parametrize("site", ["pbs", *SLOW_SITES], indirect=True)
def test_two_jobs_of_one_script_keep_to_themselves(site: BatchSite, tmp_path: Path) -> None:
    """Each reads its own exit code, whoever ends first."""
    gate = tmp_path / "gate"
    with site.started("75", "1", GATE=str(gate)) as first, site.started("0", "2", GATE=str(gate)) as second:
        for job in ("1", "2"):
            wait_until_there(Path(f"{site.script}.{job}.code.up"))
        gate.touch()
        ends = [site.finish(*job) for job in (first, second)]
    assert [(ended.code, ended.submitted) for ended in ends] == [(75, True), (0, False)], ends


@pytest.mark.parametrize("words", [("75",), pytest.param(("70", "75", "none"), marks=slow)])
@pytest.mark.parametrize("site", ["pbs", "slurm", *[s for s in SLOW_SITES if s.values[0] != "slurm"]], indirect=True)
def test_starts_that_save_nothing_do_not_go_on_for_ever(site: BatchSite, words: tuple[str, ...]) -> None:
    assert starts_until_the_last(site, words, saves=False) == 6


@slow
@pytest.mark.parametrize("site", JOB_IDS, indirect=True)
def test_starts_that_save_something_go_on(site: BatchSite) -> None:
    assert starts_until_the_last(site, ("75", "none"), saves=True) == 20


def starts_until_the_last(site: BatchSite, words: tuple[str, ...], saves: bool) -> int:
    """How often the script is started, each start by the one before; at most 20 times."""
    chain: dict[str, str] = {}
    for start in range(20):
        job = "1" if site.scheduler == "slurm" else str(start + 1)
        ended = site.run(words[start % len(words)], job, SAVES=str(start) if saves else "", **chain)
        chain = {"FLEET_CHAIN": ended.chain} if ended.chain else {}
        if not ended.submitted:
            assert "6 starts in a row saved nothing new" in ended.output
            return start + 1
    return 20
