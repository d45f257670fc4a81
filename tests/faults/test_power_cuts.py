"""The power fails at every moment of a run, whatever the disk has kept of what was not synced: the run goes on."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.faults.support.power import Choice, Disk, choices, cuts, disk_after, synced, with_own_inodes
from tests.faults.support.shim import Call, Shim, recorded
from tests.faults.support.small_runs import JOBS, OneRankRuns, Standing, goes_on, has_the_bits, quick_disk, standing_of

SHORT, MOST = 4, 1500  # states
SWEEP_SECONDS = 4 * 3600


@dataclass(frozen=True)
class State:
    """What a power cut left.

    Attributes:
        cut: before which call.
        choice: of the calls before it, those that are on the disk.
        certain: what must be there: how far each job had come by what was synced.
    """

    cut: int
    choice: Choice
    certain: Mapping[str, Standing]


@dataclass(frozen=True)
class Recording:
    """The calls of a run in `folder`, on a disk that held `before`."""

    folder: Path
    before: Disk
    calls: Sequence[Call]

    def states(self, at: Iterable[int]) -> Iterator[State]:
        """Different ones, in the order of their cuts."""
        draw, seen = random.Random(5), set[str]()
        for cut in at:
            certain: dict[str, Standing] | None = None
            for choice in choices(self.calls, cut, draw):
                digest = self.after(choice).digest
                if digest not in seen:
                    seen.add(digest)
                    certain = self.certain(cut) if certain is None else certain
                    yield State(cut, choice, certain)

    def after(self, choice: Choice) -> Disk:
        return disk_after(self.before, self.calls, choice)

    def certain(self, cut: int) -> dict[str, Standing]:
        """How far each job had come by what a cut must have left."""
        with quick_disk() as disk:
            self.after(Choice(synced(self.calls, cut))).write(self.folder, disk)
            return standing_of(disk / "run")


@pytest.fixture(scope="module")
def recording(struck: OneRankRuns, undisturbed: Mapping[str, Path]) -> Recording:
    """Of a run from its first call to its last."""
    with quick_disk() as disk:
        folder = disk / "disk"
        folder.mkdir()
        watch, log, before = Shim(folder, disk / "state"), disk / "log", Disk.of(folder)
        ended = struck(folder / "run", watch.variables(log=log))
        assert ended.code == 0, ended.output
        assert not has_the_bits(folder / "run", undisturbed)
        made = Recording(folder, before, with_own_inodes(recorded(log)))
        assert made.after(Choice(frozenset(range(len(made.calls))))).content == Disk.of(folder).content
        return made


def resumed(recording: Recording, plain: OneRankRuns, wanted: Mapping[str, Path], state: State) -> list[str]:
    """What is wrong with the run that goes on from a state."""
    with quick_disk() as disk:
        recording.after(state.choice).write(recording.folder, disk)
        wrong = goes_on(plain, disk / "run", partial(has_the_bits, wanted=wanted), state.certain)
        call = recording.calls[min(state.cut, len(recording.calls) - 1)]
        return [f"power cut before call {state.cut}, {call.kind} {Path(call.path).name}: {text}" for text in wrong]


def try_all(recording: Recording, plain: OneRankRuns, wanted: Mapping[str, Path], states: Sequence[State]) -> list[str]:
    with ThreadPoolExecutor(os.cpu_count()) as beside:
        found = list(beside.map(lambda state: resumed(recording, plain, wanted, state), states))
    wrong = [text for each in found for text in each]
    print("\n".join([f"{len(states)} states after {len(recording.calls)} calls, {len(wrong)} wrong", *wrong]))
    return wrong


def test_a_run_goes_on_after_a_power_cut(
    recording: Recording, plain: OneRankRuns, undisturbed: Mapping[str, Path]
) -> None:
    assert set(recording.certain(len(recording.calls))) == set(JOBS), "the last checkpoints are certain in the end"
    draw = random.Random(7)
    states = list(recording.states(sorted(draw.sample(cuts(recording.calls), SHORT))))
    assert not try_all(recording, plain, undisturbed, draw.sample(states, SHORT))


@pytest.mark.slow
@pytest.mark.timeout(SWEEP_SECONDS)
def test_a_run_goes_on_after_every_power_cut(
    recording: Recording, plain: OneRankRuns, undisturbed: Mapping[str, Path]
) -> None:
    states = list(recording.states(cuts(recording.calls)))
    assert len(states) >= 500
    drawn = states if len(states) <= MOST else random.Random(7).sample(states, MOST)
    assert not try_all(recording, plain, undisturbed, drawn)
