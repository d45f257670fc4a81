"""Whether a machine's GPUs are found, also where torch sees none: nobody trains on CPUs without having asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fleet.machine import devices
from fleet.machine.devices import HiddenGpus, device_of, found_kind, has_gpus
from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import FLEET, ROOT, run

NVIDIA, AMD, INTEL = "0x10de", "0x1002", "0x8086"
FOR_COMPUTING, FOR_SCREENS = {NVIDIA: "0x030200", AMD: "0x120000"}, "0x030000"
SAID = "this machine has GPUs, and torch sees none"
BROKEN = """
import fleet.machine.devices
from pathlib import Path
fleet.machine.devices.FILES = Path({files!r})
"""

pytestmark = pytest.mark.skipif(torch.accelerator.is_available(), reason="torch sees devices here")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without GPUs: its folders of files and of PCI devices."""
    for name in ("dev", "bus"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(devices, "FILES", tmp_path / "dev")
    monkeypatch.setattr(devices, "BUS", tmp_path / "bus")
    for name in devices.MASKS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def plug_in(machine: Path, maker: str, kind: str, driver: str | None) -> None:
    place = machine / "bus" / "0000:c1:00.0"
    place.mkdir()
    (place / "vendor").write_text(f"{maker}\n")
    (place / "class").write_text(f"{kind}\n")
    if driver is not None:
        (machine / driver).mkdir()
        (place / "driver").symlink_to(machine / driver)


def test_a_machine_without_gpus_trains_on_its_cpus(machine: Path) -> None:
    assert found_kind() == device_of("auto", 0) == "cpu"


@pytest.mark.parametrize("file", ["nvidia0", "kfd"])
def test_gpus_that_torch_does_not_see_are_told(machine: Path, file: str) -> None:
    (machine / "dev" / file).touch()
    with pytest.raises(HiddenGpus, match=f"{SAID}: its driver may be broken.*fleet doctor.*set the device to cpu"):
        device_of("auto", 0)
    assert device_of("cpu", 0) == "cpu"


@pytest.mark.parametrize("maker", FOR_COMPUTING)
@pytest.mark.parametrize(
    ("driver", "broken"), [(None, True), ("nouveau", True), ("nvidia", False), ("vfio-pci", False)]
)
def test_gpus_whose_driver_is_not_there_are_told(machine: Path, maker: str, driver: str | None, broken: bool) -> None:
    """Then there is no file of theirs; where a driver has them and there is none, they are not for this container."""
    plug_in(machine, maker, FOR_COMPUTING[maker], driver)
    assert has_gpus() is broken
    if broken:
        with pytest.raises(HiddenGpus, match=SAID):
            found_kind()


@pytest.mark.parametrize(("maker", "kind"), [(NVIDIA, FOR_SCREENS), (INTEL, "0x038000"), ("0x1af4", "0x020000")])
def test_what_draws_on_screens_and_other_devices_are_none(machine: Path, maker: str, kind: str) -> None:
    plug_in(machine, maker, kind, None)
    assert not has_gpus() and found_kind() == "cpu"


@pytest.mark.parametrize("mask", ["", "-1"])
def test_a_mask_that_hides_all_asks_for_cpus(machine: Path, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "dev" / "nvidia0").touch()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    assert found_kind() == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(HiddenGpus):
        found_kind()


def test_two_masks_of_one_launcher_are_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "dev" / "kfd").touch()
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    with pytest.raises(HiddenGpus, match="HIP_VISIBLE_DEVICES=3 counts within the GPUs that ROCR_VISIBLE_DEVICES=3"):
        found_kind()


@pytest.mark.parametrize("asked", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", ["run", "train"])
def test_commands_refuse_to_train_on_cpus_unless_asked(command: str, asked: bool, tmp_path: Path) -> None:
    """The module knows where to look; a program that starts with each process says elsewhere."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    (tmp_path / "sitecustomize.py").write_text(BROKEN.format(files=str(tmp_path / "dev")))
    made = write_ensemble(tmp_path, [mlp(stop={"epochs": 1})], resources={"device": "auto"})
    task = ["tests.gpu.device_tasks:Convolutions", "--virtual-workers", "1", "--steps", "1", "--checkpoint", "net.h5"]
    words = made.plain("run", "--trainers", "1") if command == "run" else [*FLEET, "train", *task, "--trainers", "1"]
    chosen = ["--set", "resources.device=cpu"] if command == "run" else ["--device", "cpu"]
    ended = run([*words, *(chosen if asked else ())], tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")
    if asked:
        assert ended.code == 0, ended.output
    else:
        assert ended.code == 2 and SAID in ended.output and "Traceback" not in ended.output, ended.output


def test_a_run_on_devices_that_are_not_here_is_refused_on_all_ranks(tmp_path: Path) -> None:
    made = write_ensemble(tmp_path, [mlp(stop={"epochs": 1})], resources={"device": "xpu"})
    ended = run(made.plain("run", "--trainers", "2"), tmp_path)
    assert ended.code == 2 and ended.output.count("torch finds cpu only here; set the device to auto or cpu") == 1
