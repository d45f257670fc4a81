"""Samples that are no (input, target): what they are is told, also where they would unpack into two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from preprocess import SourceError
from preprocess.sources.map_style import MapStyleSource

ROW = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("sample", "form"),
    [
        ({"pixels": ROW, "label": 1}, "a dict of pixels, label"),
        ((ROW, 1, 0), "a tuple of 3"),
        ([ROW], "a list of 1"),
        (np.zeros((2, 3), np.float32), r"a ndarray of shape \(2, 3\)"),
        ("ab", "a str"),
        (3.0, "a float"),
    ],
)
def test_what_is_no_pair(sample: Any, form: str) -> None:
    with pytest.raises(SourceError, match=f"'nets:Rows': its sample 0 is {form}, and no .*; let .* give a pair"):
        MapStyleSource([sample] * 4, "nets:Rows")


def test_pairs_of_any_form() -> None:
    class Pair:
        def __iter__(self) -> Any:
            return iter((ROW, 1))

    for sample in ((ROW, 1), [ROW, 1], Pair()):
        assert np.array_equal(MapStyleSource([sample] * 4, "nets:Rows").read(0)[0], ROW)
