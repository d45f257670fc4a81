"""When a group's master speaks, and how long it is silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trainers.job.single_job import StopAgreement


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def agreement(clock: Clock) -> StopAgreement:
    group: Any = SimpleNamespace(agree=lambda word: word)
    return StopAgreement(group, steps=100, clock=clock)


def spoken(made: StopAgreement, clock: Clock, seconds: list[float]) -> list[int]:
    """The steps before which the master speaks, where steps take so long."""
    heard = []
    for step, taken in enumerate(seconds, start=100):
        if made.is_due(step):
            made.reach(step, 0)
            heard.append(step)
        clock.now += taken
    return heard


def test_it_speaks_at_once_then_about_every_tenth_of_a_second() -> None:
    clock = Clock()
    assert spoken(agreement(clock), clock, [0.04] * 12) == [100, 101, 103, 105, 107, 109, 111]


def test_fast_steps_double_the_way_to_the_next_word() -> None:
    clock = Clock()
    assert spoken(agreement(clock), clock, [1e-6] * 40) == [100, 101, 103, 107, 115, 131]


def test_no_word_is_more_than_a_thousand_steps_ahead() -> None:
    clock = Clock()
    heard = spoken(agreement(clock), clock, [1e-7] * 5000)
    assert max(later - earlier for earlier, later in zip(heard, heard[1:])) == 1000


def test_waits_count_so_that_slow_samples_do_not_put_the_word_off() -> None:
    clock = Clock()
    heard = spoken(agreement(clock), clock, [0.001] * 30 + [0.4] * 30)
    assert heard[-3:] == [157, 158, 159], "each step is longer than the time between two words"


def test_the_master_s_wish_is_what_all_get() -> None:
    made = agreement(Clock())
    assert [made.reach(100 + number, wish, wishes=3) for number, wish in enumerate((0, 2, 1))] == [0, 2, 1]


def test_the_longest_silence_is_told_once() -> None:
    clock = Clock()
    made = agreement(clock)
    for at in (1.0, 4.0, 5.0):
        clock.now = at
        made.reach(100, 0)
    clock.now = 6.0
    assert (made.longest_silence(), made.longest_silence()) == (3.0, 1.0)
