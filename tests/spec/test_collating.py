"""`collate: pad` joins samples of any shape, and says where they differ in more than lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from fleet.spec.inputs import Pad, collate_of
from fleet.spec.values import Named

ROWS = [torch.arange(count, dtype=torch.float32) + 1 for count in (3, 1, 4)]


def test_arrays_are_padded_to_the_longest_of_the_batch() -> None:
    inputs, targets = Pad()([(row, number) for number, row in enumerate(ROWS)])
    assert torch.equal(inputs, pad_sequence(ROWS, batch_first=True))
    assert targets.dtype == torch.int64 and targets.tolist() == [0, 1, 2]
    inputs, _ = Pad(value=-1)([(row, 0) for row in ROWS])
    assert torch.equal(inputs, pad_sequence(ROWS, batch_first=True, padding_value=-1))


def test_along_each_axis() -> None:
    boxes = [np.ones((2, 4), np.int32), np.ones((0, 4), np.int32), np.ones((1, 6), np.int32)]
    (inputs, targets) = Pad()([(box, box) for box in boxes])
    assert inputs.shape == (3, 2, 6) and inputs.dtype == torch.int32
    assert inputs.sum(dim=(1, 2)).tolist() == [8, 0, 6]
    assert targets.dtype == torch.int64 and (targets == -100).sum() == 3 * 12 - 14


@pytest.mark.parametrize("lengths", [False, True])
def test_lengths_and_masks_come_beside_their_array(lengths: bool) -> None:
    samples = [({"ids": row.to(torch.uint16), "name": "x"}, 0.5) for row in ROWS]
    inputs, targets = Pad(lengths=lengths, mask=True)(samples)
    ids, *told, mask = inputs["ids"]
    assert ids.dtype == torch.int64 and ids.tolist() == [[1, 2, 3, 0], [1, 0, 0, 0], [1, 2, 3, 4]]
    assert [part.tolist() for part in told] == ([[3, 1, 4]] if lengths else [])
    assert mask.tolist() == [[True] * 3 + [False], [True] + [False] * 3, [True] * 4]
    assert inputs["name"] == ["x"] * 3 and targets.dtype == torch.float64


def test_trees_keep_their_form() -> None:
    samples = [((row, {"side": np.float32(2)}), ([1, 2], (row, 7))) for row in ROWS]
    (rows, side), (numbers, (again, sevens)) = Pad(target_value=0)(samples)
    assert torch.equal(rows, again) and side["side"].tolist() == [2, 2, 2]
    assert numbers.tolist() == [[1, 2]] * 3 and sevens.tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([torch.zeros(2)], "samples that are .input, target., and one is a Tensor"),
        ([(ROWS[0], 0), (ROWS[0][None], 0)], r"the input is \(3,\) of torch.float32 and \(1, 3\) of torch.float32"),
        ([(ROWS[0], 0), (ROWS[0].double(), 0)], "only lengths of axes may differ"),
        ([({"a": 1}, 0), ({"b": 1}, 0)], r"the input of one sample is a dict of \['a'\], of another a dict of \['b'\]"),
        ([(0, (1, 2)), (0, (1, 2, 3))], "the target of one sample is 2 values, of another 3 values"),
        ([({"a": 1}, 0), ({"a": None}, 0)], r"the input\['a'\] of one sample is numbers, of another nothing"),
    ],
)
def test_samples_that_do_not_go_together(samples: list[Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Pad()(samples)


def test_names() -> None:
    assert isinstance(collate_of(Named(name="pad", arguments={"mask": True})), Pad)
    assert collate_of(Named(name="torch.utils.data:default_collate"))([1, 2]).tolist() == [1, 2]
    assert isinstance(collate_of(Named(name="fleet.spec.inputs:Pad")), Pad)
