"""What a wheel holds: all files of the packages, and nothing else."""

from __future__ import annotations

import email.message
import email.parser
import re
import subprocess
import sys
import zipfile

import pytest

import fleet
from tests.wheel.support.places import ROOT, copied_checkout

PACKAGES = ("batch_scripts", "fleet", "preprocess", "trainers")
BESIDES = {"README.md"}  # files of these folders that are for readers of the checkout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that pip makes of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = copied_checkout(folder / "checkout")
    words = ["-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(checkout)]
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    assert file.name == f"fleet_hpc-{fleet.__version__}-py3-none-any.whl"
    return zipfile.ZipFile(file)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_holds_the_packages_files_and_no_others(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    there = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name not in BESIDES
    }
    assert held == there


def test_the_wheel_brings_the_command_and_nothing_loose(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    assert "fleet = fleet.commands.entry:main" in wheel.read(name).decode()
    (name,) = (name for name in wheel.namelist() if name.endswith("/top_level.txt"))
    assert wheel.read(name).decode().split() == list(PACKAGES)


def test_extras_are_documented_and_pinned(metadata: email.message.Message) -> None:
    extras = set(metadata.get_all("Provides-Extra", []))
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    told = {name for row in re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert told == extras >= {"openmpi", "images"}
    locks = (ROOT / "requirements.lock").read_text() + (ROOT / "locks" / "torch-cuda.lock").read_text()
    pinned = set(re.findall(r"^([\w.-]+)==", locks, re.MULTILINE))
    apart = {"mpich", "atheris"}  # beside Open MPI; for `make faults`, where it can be had
    for line in metadata.get_all("Requires-Dist", []):
        name = re.split(r"[^\w.-]", line)[0]
        assert re.sub(r"[-_.]+", "-", name).lower() in pinned | apart, f"{name} is in no lock"
