"""What a rank tells of an error that a job's code raised."""

from __future__ import annotations

import torch

from fleet.workers.trainer_rank import last_word

H100 = (
    "CUDA out of memory. Tried to allocate 300.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 67.72 GiB is "
    "free. Process 640 has 854.00 MiB memory in use. Including non-PyTorch memory, this process has 818.00 MiB memory "
    "in use. {allowed}Of the allocated memory 66.60 MiB is allocated by PyTorch, and 3.40 MiB is reserved by PyTorch "
    "but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF"
)
"""torch 2.11's words there."""
ASKED = "OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 GiB. GPU 0 has a total capacity of 79.18 GiB"
ASKED += " of which 67.72 GiB is free"
MEND = "; try a smaller batch_size (accumulate keeps a step's samples)"


def _said(text: str) -> str:
    return last_word("net", torch.OutOfMemoryError(text)).error


def test_of_a_device_s_memory_the_sizes_that_matter_and_the_mend_are_told() -> None:
    assert _said(H100.format(allowed="")) == ASKED + MEND


def test_a_trainer_that_shares_its_device_is_told_its_part() -> None:
    told = _said(H100.format(allowed="35.63 GiB allowed; "))
    assert told == f"{ASKED}, 35.63 GiB allowed to this trainer{MEND}, or fewer members_per_device"


def test_what_a_device_says_in_other_words_is_kept() -> None:
    assert _said("no room") == "OutOfMemoryError: no room" + MEND
