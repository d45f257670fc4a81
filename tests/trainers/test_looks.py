"""Looks during a wait: how often, with a clock that looks themselves move on."""

from __future__ import annotations

from trainers.messages.torch_backend import LEAST_BETWEEN, Looks


class Waiting:
    """A wait whose looks take these seconds, one after another, the last one's from then on."""

    def __init__(self, *takes: float) -> None:
        self.now, self.begun = 0.0, list[float]()
        self._takes = list(takes)
        self._looks = Looks(lambda: self.now)

    def wait(self, seconds: float, step: float = 0.0001) -> None:
        until = self.now + seconds
        self._looks.begin()
        while self.now < until:
            self._looks.if_due(self._look)
            self.now += step

    def _look(self) -> None:
        self.begun.append(self.now)
        self.now += self._takes.pop(0) if len(self._takes) > 1 else self._takes[0]


def test_short_looks_are_frequent_and_a_short_wait_has_none() -> None:
    waiting = Waiting(1e-6)
    waiting.wait(LEAST_BETWEEN)
    assert not waiting.begun
    waiting.wait(1.0)
    assert len(waiting.begun) > 0.5 / LEAST_BETWEEN


def test_looks_that_all_take_long_take_a_small_part_of_the_wait() -> None:
    waiting = Waiting(0.002)
    waiting.wait(10.0)
    assert 0.02 <= len(waiting.begun) * 0.002 / 10.0 <= 0.06


def test_one_look_that_was_held_up_does_not_make_the_others_rare() -> None:
    waiting = Waiting(1e-5, 0.1, 1e-5)
    waiting.wait(1.0)
    held_up, after = waiting.begun[1:3]
    assert after - held_up - 0.1 < 4 * LEAST_BETWEEN
