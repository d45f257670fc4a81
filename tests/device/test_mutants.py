"""The rig shows each wait that is missing in the project's own code."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.device.rig import SCHEDULES, Rig

COPIES, PREFETCH = "trainers.device.device_copies", "fleet.run.ranks.prefetch"
MARK, LOSSES = "trainers.device.mark", "trainers.step.losses"
UPDATE, TRAINER, TASK, FEED = (
    "trainers.step.update",
    "trainers.job.trainer",
    "trainers.task.task",
    "fleet.run.ranks.feed",
)
BUCKETS = "trainers.reduce.buckets"


@dataclass(frozen=True)
class Mutant:
    """What becomes of which line."""

    name: str
    module: str
    old: str
    new: str = "pass"


STEPS = (
    Mutant(
        "a gradient is copied before it is scaled",
        COPIES,
        "self._side.wait_stream(self._module.current_stream(self._device))",
    ),
    Mutant("a scaled gradient's memory is used again", COPIES, "flat.record_stream(self._side)"),
    Mutant("gradients are copied on another stream", COPIES, "with self._module.stream(self._side):", "if True:"),
    Mutant(
        "the event is nowhere", MARK, "event.record(stream or torch.get_device_module(device).current_stream(device))"
    ),
    Mutant("sums come before the copies", UPDATE, ", self._buckets.copies.mark()", ""),
    Mutant("nobody waits for the copies", MARK, "not event.query()", "False"),
    Mutant("a loss is read before it is there", LOSSES, "wait()"),
    Mutant("the event is on another stream", COPIES, "mark(self._device, self._side)", "mark(self._device)"),
    Mutant("the thread waits on another device", MARK, "select(device)"),
)
FEEDS = (
    Mutant("a batch is used before it is there", PREFETCH, "stream.wait_event(copied)"),
    Mutant("a batch's memory is used again", PREFETCH, "tensor.record_stream(stream)"),
    Mutant("nobody knows when a batch is there", PREFETCH, "self._stream.record_event()", "None"),
    Mutant("the feed's thread has no device", PREFETCH, '"feed", select, (self._device,)', '"feed"'),
    Mutant(
        "batches are copied in the device's own stream",
        PREFETCH,
        "nullcontext() if self._stream is None else self._module.stream(self._stream)",
        "nullcontext()",
    ),
    Mutant("batches are pageable", FEED, ".pin_memory()", ""),
    Mutant("samples are read before they are there", FEED, "reader.wait(stop, self._timeout, self._closed.is_set)"),
    Mutant("steps do not wait for samples", FEED, "self._await(base + places.start, base + places.stop)"),
    Mutant("held-out batches do not wait for samples", FEED, "self._await(first, last)"),
)
OTHERS = {
    "memory": Mutant("pinned memory is in use", UPDATE, "torch.accelerator.synchronize(place)"),
    "buckets": Mutant(
        "gradients come to pageable memory", BUCKETS, "pin_memory=self.copies is not None", "pin_memory=False"
    ),
    "loss": Mutant("losses come to pageable memory", LOSSES, ", pin_memory=True", ""),
    "batches": Mutant("batches are pageable", TASK, "value.pin_memory() if is_sent and plain else value", "value"),
    "the next step": Mutant("nobody looks at the losses of the step before", TRAINER, "before.settle()"),
    "a snapshot": Mutant(
        "a snapshot does not look at the last losses", TRAINER, "self.settle()\n            own", "own"
    ),
    "an epoch": Mutant("an epoch ends without its last losses", TRAINER, "self.settle()\n        losses", "losses"),
    "a job that moves": Mutant("nobody asks for losses", TRAINER, "self._losses.settle()"),
}


@pytest.mark.parametrize("mutant", STEPS, ids=lambda mutant: mutant.name)
def test_a_missing_wait_shows_in_steps(rig: Rig, mutant: Mutant) -> None:
    words = (mutant.module, mutant.old, mutant.new, SCHEDULES)
    assert rig.call("mutants.harm_to_steps", *words, RIG_FORBID="others")


@pytest.mark.parametrize("mutant", FEEDS, ids=lambda mutant: mutant.name)
def test_a_missing_wait_shows_in_feeds(rig: Rig, mutant: Mutant) -> None:
    words = (mutant.module, mutant.old, mutant.new, SCHEDULES)
    assert rig.call("mutants.harm_to_feeds", *words, RIG_FORBID="others")


@pytest.mark.parametrize("look", OTHERS)
def test_another_missing_wait_shows(rig: Rig, look: str) -> None:
    mutant = OTHERS[look]
    words = (mutant.module, mutant.old, mutant.new, look)
    assert rig.call("mutants.harm_to_others", *words)
    assert rig.call("mutants.harm_to_others", "trainers.state.tree", "import torch", "import torch", look) == ""


def test_the_code_as_it_is_shows_nothing(rig: Rig) -> None:
    same = ("import torch", "import torch", SCHEDULES)
    assert rig.call("mutants.harm_to_steps", COPIES, *same, RIG_FORBID="others") == ""
    assert rig.call("mutants.harm_to_feeds", PREFETCH, *same, RIG_FORBID="others") == ""
