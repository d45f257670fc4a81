"""The data set for first steps: the same picture at each reading, all digits, and something to learn in them."""

from __future__ import annotations

import numpy as np
import pytest

from preprocess import DrawnDigits, open_source


def test_a_picture_is_the_same_at_each_reading() -> None:
    first, again = DrawnDigits(), DrawnDigits()
    (picture, digit), (same, also) = first[17], again[17]
    assert picture.shape == (28, 28) and picture.dtype == np.uint8 and digit == also
    assert np.array_equal(picture, same)
    assert not np.array_equal(picture, DrawnDigits(train=False)[17][0])


def test_every_digit_is_among_them_and_one_is_held_out_for_four() -> None:
    train, held_out = DrawnDigits(count=400), DrawnDigits(train=False, count=400)
    assert (len(train), len(held_out)) == (400, 100)
    assert {digit for _, digit in (train[index] for index in range(400))} == set(range(10))


def test_it_ends_and_refuses_too_few() -> None:
    with pytest.raises(IndexError, match="picture 8: there are 8"):
        DrawnDigits(count=8)[8]
    with pytest.raises(ValueError, match="count 3: at least 4 pictures"):
        DrawnDigits(count=3)


def test_a_spec_can_name_it() -> None:
    source = open_source("preprocess:DrawnDigits", {"train": False, "count": 40})
    assert len(source) == 10 and source.layout.input_shape == (28, 28, 1)
