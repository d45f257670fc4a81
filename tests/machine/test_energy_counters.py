"""Counters of energy, as files of the kernel's layout in a temporary folder; a management library of NVIDIA's shape."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.machine.doctor import Check, Verdict, check_energy
from fleet.machine.energy import Counter, IntegratedPower, Meter, find_counters, hwmon_step, nvml_step, zones

ADDRESS = "0000:c1:00.0"
NOBODY = 65534


def zone(folder: Path, number: str, name: str, joules: float, span: float = 1000.0) -> Path:
    """A zone of RAPL, as the kernel lays it out; returns the file of its counter."""
    place = folder / f"intel-rapl:{number}"
    place.mkdir(parents=True)
    (place / "name").write_text(f"{name}\n")
    (place / "max_energy_range_uj").write_text(f"{span * 1e6:.0f}\n")
    return says(place / "energy_uj", joules)


def says(file: Path, value: float) -> Path:
    file.write_text(f"{value * 1e6:.0f}\n")
    return file


def sensor(folder: Path, number: int, driver: str, address: str, **files: float) -> Path:
    """A driver's sensors; returns their folder."""
    device = folder / "devices" / address
    device.mkdir(parents=True)
    place = folder / f"hwmon{number}"
    place.mkdir()
    (place / "name").write_text(f"{driver}\n")
    (place / "device").symlink_to(device)
    for name, value in files.items():
        says(place / name, value)
    return place


def rapl(folder: Path, devices: tuple[int, ...] = (0, 1)) -> Meter:
    return Meter(find_counters(devices, {}, folder, folder / "none"))


def joules(meter: Meter) -> float:
    return sum(value for _, value in meter.read().joules)


def test_packages_and_their_memory_are_counted_and_nothing_twice(tmp_path: Path) -> None:
    package, memory = zone(tmp_path, "0", "package-0", 10), zone(tmp_path, "0:1", "dram", 5)
    cores, platform = zone(tmp_path, "0:0", "core", 3), zone(tmp_path, "1", "psys", 20)
    meter = rapl(tmp_path)
    for file, value in ((package, 14), (memory, 7), (cores, 6), (platform, 99)):
        says(file, value)
    assert meter.sources == ("rapl",)
    assert joules(meter) == pytest.approx(4 + 2)
    assert joules(meter) == 0


def test_a_counter_that_has_come_to_its_range_goes_on(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 990, span=1000)
    meter = rapl(tmp_path)
    says(package, 15)
    assert joules(meter) == pytest.approx(25)
    (tmp_path / "intel-rapl:0" / "max_energy_range_uj").unlink()
    meter = rapl(tmp_path)
    says(package, 4)
    assert joules(meter) == pytest.approx(4), "it began anew, and nothing says where it did"


def test_a_counter_that_goes_away_is_told_once_and_others_are_read_on(tmp_path: Path) -> None:
    lost, kept = zone(tmp_path, "0", "package-0", 1), zone(tmp_path, "1", "package-1", 1)
    meter = rapl(tmp_path)
    lost.unlink()
    says(kept, 3)
    reading = meter.read()
    assert reading.gone == ("rapl",) and [value for _, value in reading.joules] == [pytest.approx(2)]
    says(kept, 8)
    reading = meter.read()
    assert reading.gone == () and [value for _, value in reading.joules] == [pytest.approx(5)]
    kept.write_text("nonsense")
    assert meter.read().gone == ("rapl",) and meter.sources == ()


def test_a_host_without_counters_has_none(tmp_path: Path) -> None:
    assert find_counters((0,), {ADDRESS: (0,)}, tmp_path / "none", tmp_path / "none") == []


def test_an_accelerator_is_known_by_its_address(tmp_path: Path) -> None:
    place = sensor(tmp_path, 0, "amdgpu", ADDRESS, energy1_input=100, power1_average=1)
    sensor(tmp_path, 1, "nvme", "0000:01:00.0", power1_input=1)
    (counter,) = find_counters((0, 1, 2), {ADDRESS: (1, 2), "0000:01:00.0": (0,)}, tmp_path / "none", tmp_path)
    assert (counter.source, counter.devices) == ("hwmon", (1, 2))
    says(place / "energy1_input", 130)
    assert counter.step() == pytest.approx(30)


def test_power_counts_by_time_where_no_energy_is_told(tmp_path: Path) -> None:
    place = sensor(tmp_path, 0, "amdgpu", ADDRESS, power1_average=200)
    assert isinstance(hwmon_step(ADDRESS, tmp_path), IntegratedPower)
    times = iter((0.0, 2.0, 3.0))
    watts = iter((100.0, 200.0, 0.0))
    step = IntegratedPower(lambda: next(watts), lambda: next(times))
    assert (step(), step()) == (300.0, 100.0)
    (place / "power1_average").unlink()
    assert hwmon_step(ADDRESS, tmp_path) is None


NVML = """
class NVMLError(Exception):
    pass
USED = [0]
def nvmlInit():
    pass
def nvmlDeviceGetHandleByPciBusId(address):
    if address != b"0000:c1:00.0":
        raise NVMLError("not found")
    return 7
def nvmlDeviceGetTotalEnergyConsumption(handle):
    if USED[0] < 0:
        raise NVMLError("not supported")
    USED[0] += 1500
    return USED[0]
def nvmlDeviceGetPowerUsage(handle):
    return 250_000
"""


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "pynvml.py").write_text(NVML)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield tmp_path
    sys.modules.pop("pynvml", None)


def test_a_management_library_of_nvidias_shape_is_read(nvml: Path) -> None:
    step = nvml_step(ADDRESS)
    assert step is not None and step() == pytest.approx(1.5)
    assert nvml_step("0000:02:00.0") is None
    sys.modules["pynvml"].USED[0] = -1
    with pytest.raises(OSError, match="not supported"):
        step()
    assert isinstance(nvml_step(ADDRESS), IntegratedPower)
    assert Meter([Counter("nvml", (0,), step)]).read().gone == ("nvml",)


def examined(powercap: Path, hwmon: Path, devices: Path) -> Check:
    (check,) = check_energy(powercap, hwmon, devices)
    return check


def test_doctor_says_what_is_read(tmp_path: Path) -> None:
    none = tmp_path / "none"
    assert "shows none" in examined(none, none, none).mend
    zone(tmp_path, "0", "package-0", 1)
    sensor(tmp_path, 0, "amdgpu", ADDRESS, power1_average=1)
    check = examined(tmp_path, tmp_path, none)
    assert (check.verdict, check.text, check.mend) == (Verdict.OK, "rapl of 1 zones; amdgpu of 1 GPUs", "")


def test_doctor_tells_how_counters_become_readable() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = zone(folder, "0", "package-0", 1)
        assert zones(folder) == [file]
        file.chmod(stat.S_IRUSR)
        code = (
            "import json, os, sys, pathlib; from fleet.machine.doctor import check_energy;"
            f"os.geteuid() or os.setuid({NOBODY}); folder = pathlib.Path(sys.argv[1]);"
            "(check,) = check_energy(folder, folder, folder); print(json.dumps([check.verdict.value, check.mend]))"
        )
        if os.geteuid():
            file.chmod(0)
        answer = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=True)
        verdict, mend = json.loads(answer.stdout)
        assert verdict == "missing" and f"sudo chmod a+r {folder}/*/energy_uj" in mend
