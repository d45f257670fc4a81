"""Pins: what a process holds still, and what a checkpoint asks of the next one."""

from __future__ import annotations

import warnings

import pytest
import torch

from trainers import ConsistencyWarning, PinsDiffer, pin, pins
from trainers.determinism import compare_pins

CPU = torch.device("cpu")


def test_pinning_sets_what_the_pins_say() -> None:
    pin(threads=1)
    now = pins(CPU)
    assert (now["threads"], now["deterministic"], now["cudnn_benchmark"], now["tf32"]) == (
        "1",
        "True",
        "False",
        "False",
    )
    assert torch.are_deterministic_algorithms_enabled()
    assert now["torch"] == torch.__version__ and now["device"] == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare_pins(now, now)


def test_a_setting_that_differs_is_an_error_with_its_mend() -> None:
    now = pins(CPU)
    with pytest.raises(PinsDiffer, match=r"threads was 8 and is 1\. Start with the checkpoint's settings"):
        compare_pins({**now, "threads": "8"}, now)
    with pytest.raises(PinsDiffer, match="MKL_CBWR was AVX2 and is unset"):
        compare_pins({**now, "MKL_CBWR": "AVX2"}, {**now, "MKL_CBWR": ""})


def test_another_machine_is_a_warning() -> None:
    now = pins(CPU)
    with pytest.warns(ConsistencyWarning, match=r"torch was 1\.0 and is .*last bits may differ"):
        compare_pins({**now, "torch": "1.0"}, now)


def test_unknown_levels_are_named() -> None:
    with pytest.raises(ValueError, match="'D9' is unknown; choose one of D0, D1"):
        pin(level="D9")
