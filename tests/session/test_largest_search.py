"""The search for the largest batch that fits: what is tried, and where it ends."""

from __future__ import annotations

import pytest

from fleet.profiling.measure import FIRST, LargestFound, TooLarge, largest_fitting


class Device:
    """Has room for so many samples; what is tried on it is noted."""

    def __init__(self, room: int, error: Exception | None = None) -> None:
        self.room, self.error, self.tried = room, error, list[int]()

    def trial(self, size: int) -> None:
        self.tried.append(size)
        if size > self.room:
            raise self.error or TooLarge("out of memory")

    def found(self, most: int, late_after: int = 99, goes_on: bool = True) -> LargestFound:
        return largest_fitting(self.trial, most, lambda _: len(self.tried) >= late_after, lambda: goes_on)


@pytest.mark.parametrize("room", [1, 2, 3, 5, 17, 31, 32, 33, 100, 1000, 65_535])
def test_what_is_found_fits_and_is_close_to_the_most(room: int) -> None:
    found = Device(room).found(10**6)
    assert found.size <= room <= found.size + max(1, found.size // 8) and found.why == "memory"
    assert found.tries == len(set(Device(room).tried)) or found.tries < 20


def test_no_more_is_tried_than_is_asked_for() -> None:
    device = Device(10**6)
    assert device.found(100) == LargestFound(100, "most", 3) and device.tried == [32, 64, 100]
    device = Device(10**6)
    assert device.found(5) == LargestFound(5, "most", 1) and device.tried == [5]


def test_what_fitted_in_time_is_taken() -> None:
    assert Device(10**6).found(10**6, late_after=3) == LargestFound(4 * FIRST, "time", 3)


def test_a_network_that_fits_in_no_way_is_told_why() -> None:
    device = Device(0)
    with pytest.raises(TooLarge, match="out of memory"):
        device.found(100)
    assert device.tried == [32, 16, 8, 4, 2, 1]


def test_an_error_of_a_larger_batch_is_a_limit_and_one_of_the_first_is_the_network_s() -> None:
    odd = ValueError("too many rows")
    found = Device(50, odd).found(1000)
    assert 44 <= found.size <= 50 and found.why == "ValueError: too many rows"
    with pytest.raises(ValueError, match="rows"):
        Device(20, odd).found(1000)
    with pytest.raises(ValueError, match="rows"):
        Device(50, odd).found(1000, goes_on=False)
