"""A search that is killed again and again, at any point, on other devices each time, is the search that was not."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.live.search.test_searching_runs import assert_same_search, decisions
from tests.live.support.ensembles import Ensemble, RunFolder
from tests.live.support.processes import Running, run, started

KILLS = 20
POLICIES = ("local", "flotilla", "malleable")
SLOWLY = ("--set", "data.pictures.train.arguments.seconds=0.003")
"""A picture takes so long, so that a quick machine does not end the search between two kills."""
TOLD = ("started", "epoch", "checkpoint", "paused", "result", "search")


def steps(folder: RunFolder) -> int:
    """How often the run has told that it came further."""
    return sum(event["event"] in TOLD for event in folder.journal)


def wait_for_steps(it: Running, folder: RunFolder, count: int) -> bool:
    """Wait until a run has come so much further; whether it still goes on then."""
    seen = steps(folder)
    it.wait_for(lambda: it.process.poll() is not None or steps(folder) >= seen + count, "further events")
    return it.process.poll() is None


def is_over(folder: RunFolder) -> bool:
    return any(event["status"] == "done" for event in folder.events("ended"))


def session(ensemble: Ensemble, folder: RunFolder, draw: random.Random) -> list[str]:
    """Start a run, and kill one rank or the launcher of it now and then, and at last all; returns what was killed."""
    trainers = draw.randint(1, 3)
    options = (*SLOWLY, "--trainers", str(trainers), "--policy", draw.choice(POLICIES))
    killed: list[str] = []
    with started(ensemble.plain(folder.path.name, *options), ensemble.folder) as it:
        while wait_for_steps(it, folder, draw.randint(1, 3)) and "all" not in killed:
            is_whole = trainers > 1 and killed[-1:] != ["rank"]
            killed.append(draw.choice(["all", "launcher", *["rank"] * is_whole]))
            if killed[-1] == "all":
                it.kill()
            elif killed[-1] == "rank":
                it.kill_rank(draw.randint(1, trainers))
            else:
                kill_launcher(it, folder)
    return killed


def kill_launcher(it: Running, folder: RunFolder) -> None:
    """Kill what started the ranks, and wait until they are started again."""
    before = len(folder.events("session"))
    it.kill_launcher()
    it.wait_for(lambda: it.process.poll() is not None or len(folder.events("session")) > before, "another start")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_kills_change_nothing(searching: Ensemble, on_one_device: RunFolder) -> None:
    folder, draw, killed = searching.left("many-kills"), random.Random(17), Counter[str]()
    while killed.total() < KILLS and not is_over(folder):
        killed.update(session(searching, folder, draw))
    assert killed.total() >= KILLS and len(killed) == 3, killed
    ended = run(searching.plain("many-kills", *SLOWLY, "--trainers", "2"), searching.folder)
    assert ended.code == 0, ended.output
    assert_same_search(folder, on_one_device)
    assert decisions(folder) == decisions(on_one_device)
