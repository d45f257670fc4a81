"""Twelve ways in which the data or the code of a run change under it: each is refused when the run is to go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from preprocess.files.modules import python
from preprocess.files.writing import whole_file, write_whole

BAD_INPUT = 2

SPEC = """
name: d
data:
  d: {train: {source: numpy, arguments: {path: train.npz}}, held_out: {source: numpy, arguments: {path: held.npz}}}
  own: {train: "mine:Rows", held_out: {source: "mine:Rows", arguments: {path: own_held.npy}}, transforms: ["mine:Same"]}
defaults:
  data: d
  model: {name: "net:Net", arguments: {width: 4}}
  optimizer: {name: SGD, arguments: {lr: 0.1}}
  loss: "losses:loss"
  metrics: ["metrics:right"]
  batch_size: 16
  stop: {epochs: 1}
jobs:
  - {name: a}
  - {name: b, data: own}
resources: {trainers: 1, device: cpu}
"""
MODULES = {
    "net.py": "from torch import nn\nfrom layers import hidden\n\n\nclass Net(nn.Sequential):\n"
    "    def __init__(self, width):\n        super().__init__(*hidden(width), nn.Linear(width, 2))\n",
    "layers.py": "from torch import nn\n\n\ndef hidden(width):\n    return [nn.Linear(8, width), nn.ReLU()]\n",
    "losses.py": "from torch.nn import functional\n\n\ndef loss(output, target):\n"
    "    return functional.cross_entropy(output, target)\n",
    "metrics.py": "def right(output, target):\n    return (output.argmax(1) == target).sum(), len(target)\n",
    "mine.py": "import numpy as np\n\n\nclass Same:\n    def __call__(self, x, rng):\n        return x\n\n\n"
    "class Rows:\n"
    "    def __init__(self, path='own.npy'):\n        self.x = np.load(path)\n\n    def __len__(self):\n"
    "        return len(self.x)\n\n    def __getitem__(self, i):\n        return self.x[i], int(self.x[i, 0] > 0)\n",
}


def make(folder: Path) -> None:
    """Write the spec, its modules and its data."""
    write_whole(folder / "d.yaml", SPEC)
    for name, text in MODULES.items():
        write_whole(folder / name, text)
    for number, (name, count) in enumerate(
        {"train.npz": 96, "held.npz": 32, "own.npy": 64, "own_held.npy": 32}.items()
    ):
        _write_rows(folder / name, _rows(number, count))


def _rows(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 8)).astype("float32")


def _write_rows(path: Path, rows: np.ndarray) -> None:
    if path.suffix == ".npz":
        np.savez(path, inputs=rows, targets=(rows[:, 0] > 0).astype("int64"))
    else:
        np.save(path, rows)


def _byte(path: Path) -> None:
    """Flip a bit of one byte; the size and the time stay."""
    told, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with whole_file(path) as file:
        file.write(content)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))


def _line(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        write_whole(folder / name, MODULES[name] + "\nLATER = 1\n")

    return change


def _more_rows(folder: Path) -> None:
    _write_rows(folder / "train.npz", np.concatenate([_rows(0, 96), _rows(9, 1)]))


def _fewer_rows(folder: Path) -> None:
    _write_rows(folder / "own.npy", _rows(2, 64)[:-1])


def _swapped_rows(folder: Path) -> None:
    rows = _rows(0, 96)
    _write_rows(folder / "train.npz", rows[[1, 0, *range(2, 96)]])


CHANGES: dict[str, Callable[[Path], None]] = {
    "a byte of the training file": lambda folder: _byte(folder / "train.npz"),
    "a byte of the held-out file": lambda folder: _byte(folder / "held.npz"),
    "a row more": _more_rows,
    "two rows in each other's place": _swapped_rows,
    "a byte of a file that a class of one's own opens": lambda folder: _byte(folder / "own.npy"),
    "a row less there": _fewer_rows,
    "a line of the network": _line("net.py"),
    "a line of what the network imports": _line("layers.py"),
    "a line of the loss": _line("losses.py"),
    "a line of a metric": _line("metrics.py"),
    "a line of the data set and of a transform": _line("mine.py"),
    "a folder: the same spec with other data": lambda folder: _write_rows(folder / "held.npz", _rows(7, 32)),
}


def fleet(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of fleet in a folder."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        python("-m", "fleet", *words), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def begun(folder: Path) -> Path:
    """Make the ensemble in a folder `spec` and train it; returns that folder, the run is `r` beside it."""
    home = folder / "spec"
    home.mkdir()
    make(home)
    told = fleet(folder, "run", "spec/d.yaml", "--out", "r")
    if told.returncode:
        raise RuntimeError(told.stderr)
    return home


def refused(folder: Path, name: str) -> bool:
    """Whether the run of a copy of a folder is refused once something is changed in it."""
    copy = folder.parent / f"{folder.name}-changed"
    shutil.copytree(folder, copy)
    place = "spec"
    try:
        if name.startswith("a folder"):
            place = "elsewhere"
            shutil.copytree(copy / "spec", copy / place)
        CHANGES[name](copy / place)
        return fleet(copy, "run", f"{place}/d.yaml", "--out", "r").returncode == BAD_INPUT
    finally:
        shutil.rmtree(copy)


def bars() -> list[dict[str, Any]]:
    """Change a run's data and code in twelve ways; and copy it, with other times, which is no change."""
    with tempfile.TemporaryDirectory(prefix="fleet-fingerprints-") as place:
        folder = Path(place) / "run"
        folder.mkdir()
        home = begun(folder)
        missed = [name for name in CHANGES if not refused(folder, name)]
        for name in missed:
            print(f"not refused: {name}", file=sys.stderr)
        for path in home.iterdir():
            os.utime(path)
        same = fleet(folder, "run", "spec/d.yaml", "--out", "r").returncode
        inside = fleet(home, "run", "d.yaml", "--out", "../r").returncode
    count = len(CHANGES) - len(missed)
    return [
        {"name": "changes of data and code that are refused", "value": count, "bar": "12 of 12", "ok": count == 12},
        {"name": "files with other times alone: refused", "value": int(same != 0), "bar": "0", "ok": same == 0},
        {"name": "the same from another folder: refused", "value": int(inside != 0), "bar": "0", "ok": inside == 0},
    ]
