"""What the owner of a run, a member of its group and a stranger can do with its directory: the table of the docs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "shared-machines.md"
OWN, TEAM = 20_000, 30_000  # group and users whom nobody is
USERS = {"owner": (OWN, TEAM), "member": (OWN + 1, TEAM), "stranger": (OWN + 2, OWN + 2)}
SPEC = """
name: small
data: {d: {train: {source: "points:Points"}}}
jobs:
  - {name: a, data: d, model: {name: "torch.nn:Linear", arguments: {in_features: 4, out_features: 2}},
     optimizer: {name: SGD, arguments: {lr: 0.1}}, loss: cross_entropy, stop: {epochs: 1}}
resources: {trainers: 1, preprocessors: 1, device: cpu, lock_wait: 0}
"""
POINTS = """
import torch

class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), float(index)), index % 2
"""
ADDED = SPEC.split("- ")[1].split("\nresources")[0].replace("name: a", "name: late")
READ = """
import sys, pathlib, trainers
print(trainers.read(next(pathlib.Path(sys.argv[1]).glob("checkpoints/a/*.h5"))).epoch)
"""
HOLD = """
import contextlib, fcntl, pathlib, struct, sys
files = []
for name in (".lock", ".lock.held", "journal.jsonl"):
    for mode, kind, flock in (("rb", fcntl.F_RDLCK, fcntl.LOCK_SH), ("ab", fcntl.F_WRLCK, fcntl.LOCK_EX)):
        with contextlib.suppress(OSError):
            files.append(open(pathlib.Path(sys.argv[1], name), mode))
            fcntl.flock(files[-1], flock | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):
            fcntl.fcntl(files[-1], fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, 0, 0, 0))
print("held", flush=True)
input()
"""
TAKE = """
import pathlib, sys
from fleet.journal.directory import RunDirectory
RunDirectory(pathlib.Path(sys.argv[1])).open()
"""


@dataclass(frozen=True)
class Place:
    """A folder in which all three users work, and how a command is started as one of them."""

    folder: Path
    prefix: tuple[str, ...]

    def run(self, user: str, mask: int, *command: str, at: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of fleet, or of Python (`-c`), to its end."""
        return subprocess.run(
            self.command(user, mask, *command), cwd=at or self.folder / user, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=300, check=False,
        )  # fmt: skip

    def command(self, user: str, mask: int, *command: str) -> list[str]:
        """The words that start it."""
        number, group = USERS[user]
        home = self.folder / user
        words = [sys.executable, *(() if command[0] == "-c" else ("-m", "fleet")), *command]
        as_user = ["setpriv", f"--reuid={number}", f"--regid={group}", "--clear-groups", "env", "-i"]
        values = {"HOME": home, "USER": user, "PATH": os.environ["PATH"], "TMPDIR": home, "PYTHONPATH": ROOT}
        settings = [f"{name}={value}" for name, value in values.items()]
        return [*self.prefix, "sh", "-c", f'umask {mask:03o}; exec "$@"', "sh", *as_user, *settings, *words]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Skipped where users cannot be changed, or cannot read the interpreter even with root's home opened to them."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv (util-linux), to be other users")
    folder = Path(tempfile.mkdtemp(prefix="fleet-users-"))
    try:
        folder.chmod(0o755)
        for user, (number, group) in USERS.items():
            home = folder / user
            home.mkdir()
            os.chown(home, number, group)
            (home / "small.yaml").write_text(SPEC)
            (home / "points.py").write_text(POINTS)
            (home / "late.yaml").write_text(ADDED)
        yield _usable(folder)
    finally:
        shutil.rmtree(folder)


def _usable(folder: Path) -> Place:
    """With the interpreter as it is; else where its folder alone is seen through the closed one, such as /root."""
    own = Path(sys.base_prefix)
    closed = next((each for each in reversed(own.parents) if not each.stat().st_mode & 0o001), None)
    prefixes: list[tuple[str, ...]] = [()]
    if closed is not None:
        script = '''mount --bind "$1" "$3" && mount -t tmpfs -o mode=755 tmpfs "$2" && mkdir -p "$1" &&
            mount --bind "$3" "$1" && shift 3 && exec "$@"'''
        (folder / "python").mkdir()
        words = ("unshare", "-m", "sh", "-c", script, "sh", str(own), str(closed), str(folder / "python"))
        prefixes.append(words)
    for prefix in prefixes:
        found = Place(folder, prefix)
        if found.run("stranger", 0o022, "--version").returncode == 0:
            return found
    pytest.skip(f"users cannot start {sys.executable}: open it to them, or let namespaces of mounts be made")


@pytest.fixture(scope="module")
def runs(place: Place) -> dict[int, Path]:
    """Umask -> a run that the owner has carried out under it, in a folder of the group or of their own."""
    found = {}
    for mask, mode in ((0o002, 0o2775), (0o022, 0o755)):
        folder = place.folder / f"runs-{mask:03o}"
        folder.mkdir()
        os.chown(folder, *USERS["owner"])
        folder.chmod(mode)
        ended = place.run("owner", mask, "run", "small.yaml", "--out", str(folder / "made"))
        assert ended.returncode == 0, ended.stderr + ended.stdout
        found[mask] = folder / "made"
    return found


def table() -> list[tuple[str, str, int, bool]]:
    """What is done, by whom, under which umask, and whether it can be."""
    lines = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line] for line in lines]
    found = []
    for what, *cells in rows:
        for who, cell in zip(header[1:], cells, strict=True):
            assert cell in ("yes", "no"), cell
            user, _, mask = who.partition(", umask ")
            found += [
                (what.partition(":")[0], user, int(each, 8), cell == "yes")
                for each in ((mask,) if mask else ("002", "022"))
            ]
    return found


def cell(what: str, user: str, mask: int, can: bool) -> ParameterSet:
    """Whoever is no member fares alike under both; one of them is tried where tests are to be quick."""
    again = (user, mask) in (("owner", 0o022), ("stranger", 0o002))
    marks = [pytest.mark.slow] if again or what == "go on with the run" else []
    return pytest.param(what, user, mask, can, id=f"{what}-{user}-{mask:03o}", marks=marks)


@pytest.mark.parametrize("what, user, mask, can", [cell(*each) for each in table()])
def test_a_cell(place: Place, runs: dict[int, Path], what: str, user: str, mask: int, can: bool) -> None:
    directory = runs[mask].with_name("tried")
    subprocess.run(["cp", "-a", str(runs[mask]), str(directory)], check=True)
    try:
        if what == "hold the owner's next start up":
            assert _holds_up(place, user, mask, directory) == can
            return
        ended = place.run(user, mask, *_command(what, directory))
        assert "Traceback" not in ended.stderr, ended.stderr
        assert (ended.returncode == 0) == can, ended.stderr + ended.stdout
        if not can:
            assert ended.returncode == 2 and str(directory) in ended.stderr, ended.stderr
    finally:
        shutil.rmtree(directory)


def _command(what: str, directory: Path) -> tuple[str, ...]:
    out = str(directory)
    return {
        "see how the run stands": ("status", out),
        "make the report elsewhere": ("report", out, "--out", "mine.html"),
        "make the report there": ("report", out),
        "read a checkpoint": ("-c", READ, out),
        "leave word that a network stops": ("stop", out, "a", "--wait", "0"),
        "add a network": ("add", out, "late.yaml", "--wait", "0"),
        "go on with the run": ("run", "small.yaml", "--out", out),
    }[what]


def _holds_up(place: Place, user: str, mask: int, directory: Path) -> bool:
    """Whether the owner's start finds the directory held, with locks of a user on all that it can open."""
    command = place.command(user, mask, "-c", HOLD, str(directory))
    (directory / ".lock.held").touch(0o600 if mask == 0o022 else 0o620)  # as a run that was killed leaves it
    (directory / ".lock.held").chmod(0o600 if mask == 0o022 else 0o620)
    os.chown(directory / ".lock.held", *USERS["owner"])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=place.folder / user) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        start = place.run("owner", mask, "-c", TAKE, str(directory))
        holder.communicate(b"\n")
    assert start.returncode == 0 or "another run is writing there now" in start.stderr, start.stderr
    return start.returncode != 0
