"""The project's code with a wait, a record_stream or a selection taken away."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
import torch_rig

from fleet.workers import feed
from fleet.workers.feed import BatchFeed
from tests.device.programs import counting, feeding, sending, stepping
from trainers.device import device_streams


def harm_to_steps(module: str, old: str, new: str, schedules: list[str]) -> str:
    """Change a line of a module; return what that does to a trainer's steps: nothing if it is empty."""
    return _harm(module, old, new, lambda: stepping.different("perceptron", 2, schedules))


def harm_to_feeds(module: str, old: str, new: str, schedules: list[str]) -> str:
    """The same for a trainer's feed, whose taker looks at its batches late."""
    return _harm(module, old, new, lambda: [name for name in schedules if feeding.harmed(name)])


def harm_to_others(module: str, old: str, new: str, look: str) -> str:
    """The same for what only one of LOOKS sees."""
    return _harm(module, old, new, lambda: [str(told) for told in [LOOKS[look]()] if told])


def _pinned_in_use() -> bool:
    counted = counting.of_trainer("perceptron", 3, "both-late")
    return counted["pinned bytes"] >= counted["bytes of a gradient"]


def _pageable_when_spilled() -> int:
    del torch_rig.device_module.mem_get_info
    return counting.of_trainer("perceptron", 2).get("pageable copies", 0)


class _Lane:
    """A reader's end of a lane of 8 samples, of which one is there for each that was waited for."""

    samples = certain = 8
    released = available = releases = 0

    def wait(self, stop: int, *_: Any) -> bool:
        if stop > self.released + self.samples:
            raise ValueError("the lane cannot hold so many")
        self.available = max(self.available, stop)
        return True

    def release(self, position: int) -> None:
        self.releases += 1
        if self.releases > 100:
            raise RuntimeError("gives back samples that are not there, again and again")
        self.released = min(position, self.available)


def _waits_for_places_far_ahead() -> bool:
    feed: Any = object.__new__(BatchFeed)
    feed._reader, feed._closed, feed._timeout = _Lane(), Event(), 1.0
    feed._await(30, 34)
    return bool(feed._reader.available != 34)


def _passes_by() -> bool:
    lane: Any = _Lane()
    return not feed.pass_by(lane, 30, 1.0, lambda: False) or lane.released != 30


def _goes_on_without_substitutes() -> bool:
    """Whether a feed's thread makes a batch while the thread that trains has yet to put samples there."""
    batch, taken = (np.zeros((1, 2)), np.zeros(1)), np.array([7])
    asked = feed.Missing.among("train", 0, np.array([3]), taken, np.zeros(8, np.bool_), batch)
    missing = next(asked)
    with ThreadPoolExecutor(1) as pool:
        goes_on = pool.submit(next, asked, None)
        harmed = bool(wait([goes_on], 0.2).done)
        missing.leave()
    return harmed


def _does_not_know_that_a_kernel_failed() -> bool:
    torch_rig.schedule("both-late")
    device = torch.device("rig", 0)
    torch.gather(torch.ones(3, device=device) * 1, 0, torch.tensor([7], device=device))
    return not device_streams.why_broken(device)


LOOKS: dict[str, Callable[[], Any]] = {
    "memory": _pinned_in_use,
    "buckets": _pageable_when_spilled,
    "loss": lambda: counting.of_trainer("perceptron", 2).get("pageable copies", 0),
    "batches": lambda: sending.of_collated("prompt")["pageable copies"],
    "the next step": lambda: not stepping.diverging("step")[-1],
    "a snapshot": lambda: not stepping.diverging("snapshot")[-1],
    "an epoch": lambda: stepping.epoch_s_loss("cpu") != stepping.epoch_s_loss("rig"),
    "a job that moves": lambda: not stepping.diverging("settle")[-1],
    "a move": lambda: not stepping.diverging("move")[-1],
    "a device that failed": _does_not_know_that_a_kernel_failed,
    "places far ahead": _waits_for_places_far_ahead,
    "samples of others": _passes_by,
    "samples in place of corrupt ones": _goes_on_without_substitutes,
}


def _harm(module: str, old: str, new: str, work: Any) -> str:
    changed(module, old, new)
    try:
        return ", ".join(work())
    except (RuntimeError, ArithmeticError, ValueError, IndexError) as error:  # refused, or no longer finite
        return str(error).splitlines()[0]


def changed(name: str, old: str, new: str) -> None:
    """Run a module's text with its last `old` made `new`; all who know its classes know the changed ones then."""
    module = importlib.import_module(name)
    before, found, after = Path(str(module.__file__)).read_text().rpartition(old)
    assert found, f"{name} has no {old!r}"
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == name]
    exec(compile(before + new + after, str(module.__file__), "exec"), vars(module))
    for other in [each for key, each in sys.modules.items() if key.partition(".")[0] in ("fleet", "trainers", "tests")]:
        for key, value in list(vars(other).items()):
            if any(value is each for each in own):
                setattr(other, key, getattr(module, value.__name__))
