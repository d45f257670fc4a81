"""Trees of plain data and tensors, through JSON and arrays and back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.state.tree import decode, encode, of_outline, on_host, outline

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.text(max_size=5) | st.integers()
TREES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(TREES)
def test_plain_trees_come_back_as_they_were(tree: Any) -> None:
    back = decode(encode(tree))
    assert back == tree and repr(back) == repr(tree)


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape).mul(3).to(dtype)
    back = decode(encode({"a/b": [tensor], 3: tensor}))
    assert all(torch.equal(item, tensor) and item.dtype == dtype for item in (back["a/b"][0], back[3]))
    assert back[3].view(-1).view(torch.uint8).numel() == tensor.nbytes, "its bytes can be looked at"


def test_arrays_and_counters_come_back() -> None:
    back = decode(encode({"keys": np.arange(3, dtype=np.uint32), "milestones": Counter({3: 2})}))
    assert back["keys"].dtype == np.uint32 and back["keys"].tolist() == [0, 1, 2]
    assert back["milestones"] == Counter({3: 2}) and isinstance(back["milestones"], Counter)


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(TypeError, match="/a/1 holds a set"):
        encode({"a": [1, {2}]})
    with pytest.raises(TypeError, match=r"has the key \(1, 2\)"):
        encode({(1, 2): 3})


def test_host_copies_are_independent() -> None:
    original: dict[str, Any] = {"t": torch.zeros(2), "l": [1]}
    copied = on_host(original)
    original["t"].add_(1)
    original["l"].append(2)
    assert copied["t"].tolist() == [0, 0] and copied["l"] == [1]


def test_an_outline_keeps_all_but_the_values_of_arrays() -> None:
    tree = {"ids": torch.arange(1, 5).to(torch.uint16), "rest": (np.ones((2, 0, 3)), np.ones(2, np.float32), "a", 7)}
    back = of_outline(outline(encode(tree)))
    assert len(encode(back)) == len(encode(tree))
    assert back["ids"].dtype == torch.uint16 and back["ids"].tolist() == [0] * 4
    empty, zeros, *plain = back["rest"]
    assert empty.shape == (2, 0, 3) and zeros.dtype == np.float32 and not zeros.any() and plain == ["a", 7]
