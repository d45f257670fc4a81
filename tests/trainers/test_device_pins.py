"""What is pinned of an accelerator, told by stand-ins for what torch and the system say of GPUs that are not here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainers import ConsistencyWarning
from trainers.repeatable import determinism as told_by
from trainers.repeatable.determinism import check_members, compare_pins, device_pins, pins

CPU = torch.device("cpu")
NVIDIA: dict[str, Any] = {"cuda": "12.8", "hip": None, "cudnn": 91002, "driver": "570.86.15"}
AMD: dict[str, Any] = {"cuda": None, "hip": "6.4.43482", "cudnn": 3004000, "driver": "6.12.12"}
INTEL: dict[str, Any] = {"cuda": None, "hip": None, "cudnn": None, "driver": None}
OF_NVIDIA = {"multiprocessors": "132", "cuda": "12.8", "cudnn": "91002", "driver": "570.86.15"}
OF_AMD = {"multiprocessors": "110", "rocm": "6.4.43482", "cudnn": "3004000", "driver": "6.12.12"}
OF_INTEL = {"multiprocessors": "512", "driver": "1.6.33578"}


def stand_in(
    monkeypatch: pytest.MonkeyPatch, folder: Path, software: Mapping[str, Any], **properties: object
) -> dict[str, str]:
    """The pins of a device with these properties and this software; its driver's version is in a file of the system."""
    module = SimpleNamespace(get_device_properties=lambda device: SimpleNamespace(**properties))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch.version, "cuda", software["cuda"])
    monkeypatch.setattr(torch.version, "hip", software["hip"])
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: software["cudnn"])
    driver = folder / "version"
    if software["driver"]:
        driver.write_text(f"{software['driver']}\n")
    monkeypatch.setattr(told_by, "_DRIVERS", (folder / "none", driver))
    return device_pins(torch.device("cuda", 0))


@pytest.mark.parametrize(
    ("software", "properties", "wanted"),
    [
        (NVIDIA, {"multi_processor_count": 132}, OF_NVIDIA),
        (AMD, {"multi_processor_count": 110}, OF_AMD),
        (INTEL, {"max_compute_units": 512, "driver_version": "1.6.33578"}, OF_INTEL),
        (INTEL, {}, {}),
    ],
    ids=["NVIDIA", "AMD", "Intel", "untold"],
)
def test_pins_are_what_is_told(
    software: Mapping[str, Any],
    properties: Mapping[str, object],
    wanted: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert stand_in(monkeypatch, tmp_path, software, **properties) == wanted


def test_a_cpu_has_none() -> None:
    assert device_pins(CPU) == {}


@pytest.mark.parametrize("name", OF_NVIDIA)
def test_another_one_is_named_to_who_goes_on_and_to_who_trains_together(name: str) -> None:
    first = {**pins(CPU), "device": "GPU A", **OF_NVIDIA}
    other = {**first, name: "1"}
    said = f"{name} was {OF_NVIDIA[name]} and is 1"
    with pytest.warns(ConsistencyWarning, match=said):
        compare_pins(first, other)
    with pytest.warns(ConsistencyWarning, match=f"{name} is {OF_NVIDIA[name]} on rank 1 and 1 on rank 2"):
        check_members([first, other], ["rank 1", "rank 2"])


def test_other_software_of_another_maker_is_named() -> None:
    common = {**pins(CPU), "device": "GPU A"}
    with pytest.warns(ConsistencyWarning, match="cuda was 12.8 and is unset"):
        compare_pins({**common, **OF_NVIDIA}, {**common, **OF_AMD})
