"""Words, numbers and colours."""

from __future__ import annotations

import math
import re

import pytest

from fleet.journal.state import SampleCounts
from fleet.report import wording
from fleet.report.rendering import ink_on, network_colours


@pytest.mark.parametrize(
    "seconds, text",
    [(0.123, "0.12 s"), (12.34, "12.3 s"), (245, "4 min 05 s"), (11_220, "3 h 07 min"), (math.nan, "-")],
)
def test_durations(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize("indices, text", [((), "-"), ((3,), "3"), ((5, 0, 1, 2), "0-2, 5"), ((1, 3), "1, 3")])
def test_devices(indices: tuple[int, ...], text: str) -> None:
    assert wording.devices(indices) == text


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("accuracy", 0.98765, "98.77 %"),
        ("accuracy", 97.0, "97"),
        ("loss", 0.061234, "0.06123"),
        ("loss", math.nan, "nan"),
    ],
)
def test_metrics(name: str, value: float, text: str) -> None:
    assert wording.metric(name, value) == text


@pytest.mark.parametrize(
    "read, laid, made, text",
    [
        (400, 400, 100, "samples made for each one read: 0.25"),
        (3, 4, 4, "samples made for each one read: 1.33"),
        (32_000, 900, 100, "samples made for each one read: 0.0031"),
        (400, 0, 0, ""),
        (0, 400, 100, ""),
    ],
)
def test_samples_made_for_each_one_read(read: int, laid: int, made: int, text: str) -> None:
    assert wording.per_read(SampleCounts({"digits": read}, {"digits": laid}, {"digits": made})) == text


@pytest.mark.parametrize("number", [1, 10, 11, 100])
def test_every_network_has_a_colour_of_its_own(number: int) -> None:
    colours = network_colours([f"net-{index}" for index in range(number)])
    assert len(set(colours.values())) == number
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours.values())


def test_text_on_a_colour_can_be_read() -> None:
    assert (ink_on("#ffffff"), ink_on("#000000")) == ("#10151c", "#ffffff")
