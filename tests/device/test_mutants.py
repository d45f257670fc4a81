"""The rig shows each wait that is missing in the project's own code."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.device.rig import SCHEDULES, Rig

COPIES, PREFETCH = "trainers.device.device_copies", "fleet.run.ranks.prefetch"
MARK, LOSSES = "trainers.device.mark", "trainers.step.losses"
WAIT = (
    "self._side.wait_stream(self._module.current_stream(self._device))\n        with self._module.stream(self._side):\n"
)
COPY = "            for view, gradient"
GIVE = "            torch._foreach_copy_"
INSIDE = "with self._module.stream(self._side):\n"


@dataclass(frozen=True)
class Mutant:
    """What becomes of which line."""

    name: str
    module: str
    old: str
    new: str = "pass"


STEPS = (
    Mutant("a gradient is copied before it is scaled", COPIES, f"{WAIT}{COPY}", f"{INSIDE}{COPY}"),
    Mutant("a scaled gradient's memory is used again", COPIES, "gradient.record_stream(self._side)"),
    Mutant("nobody waits for the copies", MARK, "not event.query()", "False"),
    Mutant("a loss is read before it is there", LOSSES, "wait()"),
    Mutant("the event is on another stream", COPIES, "mark(self._device, self._side)", "mark(self._device)"),
    Mutant("the thread waits on another device", MARK, "select(device)"),
    Mutant("sums come before the update has read the last", COPIES, f"{WAIT}{GIVE}", f"{INSIDE}{GIVE}"),
    Mutant(
        "the update comes before the sums", COPIES, "self._module.current_stream(self._device).wait_stream(self._side)"
    ),
)
FEEDS = (
    Mutant("a batch is used before it is there", PREFETCH, "stream.wait_event(copied)"),
    Mutant("a batch's memory is used again", PREFETCH, "tensor.record_stream(stream)"),
)


@pytest.mark.parametrize("mutant", STEPS, ids=lambda mutant: mutant.name)
def test_a_missing_wait_shows_in_steps(rig: Rig, mutant: Mutant) -> None:
    words = (mutant.module, mutant.old, mutant.new, SCHEDULES)
    assert rig.call("mutants.harm_to_steps", *words, RIG_FORBID="others")


@pytest.mark.parametrize("mutant", FEEDS, ids=lambda mutant: mutant.name)
def test_a_missing_wait_shows_in_feeds(rig: Rig, mutant: Mutant) -> None:
    words = (mutant.module, mutant.old, mutant.new, SCHEDULES)
    assert rig.call("mutants.harm_to_feeds", *words, RIG_FORBID="others")


def test_the_code_as_it_is_shows_nothing(rig: Rig) -> None:
    same = ("import torch", "import torch", SCHEDULES)
    assert rig.call("mutants.harm_to_steps", COPIES, *same, RIG_FORBID="others") == ""
    assert rig.call("mutants.harm_to_feeds", PREFETCH, *same, RIG_FORBID="others") == ""
