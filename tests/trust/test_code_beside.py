"""What lies beside a spec, or in the current folder, runs only where the spec names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from fleet.spec.references import ReferenceProblem, importable, resolve
from preprocess.files.modules import python

# Installed libraries, some that are not, and modules of Python's own: all that fleet or a library of it may import.
HOSTILE = (
    "cv2", "h5py", "horovod", "jinja2", "lmdb", "mpi4py", "numexpr", "numpy", "PIL", "plotly", "psutil", "pyarrow",
    "pydantic", "random", "rich", "simplejpeg", "sympy", "tensorboard", "torch", "torchvision", "triton", "typer",
    "yaml", "zarr", "json", "secrets",
)  # fmt: skip
NET = "import torch\n\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(4, 2)\n"
DEFERRED = "\n    def forward(self, x):\n        from helper import SCALE\n        return super().forward(x) * SCALE\n"


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder in which everything runs that is imported from it, with data and a spec of built-ins."""
    for name in HOSTILE:
        text = f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\nraise ImportError('{name} beside a spec')\n"
        (tmp_path / f"{name}.py").write_text(text)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["inputs"], file["targets"] = np.zeros((16, 4), "f4"), np.arange(16) % 2
    np.savez(tmp_path / "d.npz", inputs=np.zeros((16, 4), "f4"), targets=np.arange(16) % 2)
    _write_spec(tmp_path, {"name": "trainers.zoo:MLP", "arguments": {"inputs": 4, "widths": [8], "classes": 2}})
    return tmp_path


def _write_spec(folder: Path, model: object) -> None:
    job = {
        "name": "a", "data": "w", "model": model, "optimizer": {"name": "SGD", "arguments": {"lr": 0.01}},
        "loss": "cross_entropy", "batch_size": 4, "stop": {"epochs": 1},
    }  # fmt: skip
    data = {"w": {"train": {"source": "hdf5", "arguments": {"path": str(folder / "d.h5")}}}}
    asked = {"trainers": 1, "preprocessors": 1, "device": "cpu"}
    (folder / "s.yaml").write_text(json.dumps({"name": "s", "data": data, "jobs": [job], "resources": asked}))


def _fleet(folder: Path, *words: str) -> str:
    """What `python -m fleet` says, with that current folder; it ends well."""
    command = [sys.executable, "-m", "fleet", *words]
    done = subprocess.run(command, cwd=folder, env=_cold(), capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _cold() -> dict[str, str]:
    """Variables with which a process imports all that it needs itself."""
    return {name: value for name, value in os.environ.items() if name not in ("FLEET_WARM", "PYTHONSAFEPATH")}


def _ran(folder: Path) -> str:
    return (folder / "ran").read_text() if (folder / "ran").exists() else ""


@pytest.mark.parametrize("words", [("plan", "s.yaml"), ("doctor",), ("convert", "d.npz", "new.h5")])
def test_nothing_beside_a_spec_runs_where_it_is_only_read(beside: Path, words: tuple[str, ...]) -> None:
    _fleet(beside, *words)
    assert _ran(beside) == ""


def test_nothing_beside_a_spec_of_built_ins_runs_on_its_ranks(beside: Path) -> None:
    _fleet(beside, "run", "s.yaml", "--out", "out")
    _fleet(beside, "status", "out")
    assert _ran(beside) == ""


def test_a_network_beside_its_spec_finds_what_lies_beside_it_as_late_as_it_trains(beside: Path) -> None:
    (beside / "nets.py").write_text(NET + DEFERRED)
    (beside / "helper.py").write_text("SCALE = 2.0\n")
    _write_spec(beside, "nets:Net")
    _fleet(beside, "run", "s.yaml", "--out", "out")
    assert _ran(beside) == ""


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Modules that a test has imported go."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("forgotten")
def test_only_what_is_named_and_what_that_imports_is_found(tmp_path: Path) -> None:
    for name in ("named_one", "sibling", "late", "optional_library", "lies_there"):
        (tmp_path / f"{name}.py").write_text("")
    library = tmp_path / "installed"
    library.mkdir()
    (library / "a_library.py").write_text("def has(name):\n    import importlib\n    importlib.import_module(name)\n")
    (tmp_path / "named_one.py").write_text(
        "import sibling, a_library\n"
        "def late():\n    import late\n"
        "def through():\n    a_library.has('optional_library')\n"
    )
    sys.path.append(str(library))
    try:
        with importable([tmp_path]):
            with pytest.raises(ImportError):
                __import__("lies_there")
            late, through = resolve("named_one:late"), resolve("named_one:through")
        late()
        assert {"sibling", "late"} <= set(sys.modules)
        with pytest.raises(ImportError):
            through()
        with pytest.raises(ReferenceProblem, match="no module"):
            resolve("lies_there:X")
    finally:
        sys.path.remove(str(library))


@pytest.mark.usefixtures("forgotten")
def test_a_module_finds_no_others_of_the_current_folder(tmp_path: Path) -> None:
    own, current = tmp_path / "own", tmp_path / "current"
    for folder in (own, current):
        folder.mkdir()
    (own / "of_spec.py").write_text("def find():\n    import of_current\n")
    (current / "of_current.py").write_text("")
    with importable([own, current]):
        find = resolve("of_spec:find")
        with pytest.raises(ImportError):
            find()


@pytest.mark.parametrize("words", [("-m", "json.tool", "x.json"), ("-c", "import json, sys; print(sys.argv[1])", "{}")])
def test_a_python_that_fleet_starts_looks_for_nothing_in_its_folder(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "json.py").write_text("raise AssertionError('it has run')")
    (tmp_path / "x.json").write_text("{}")
    done = subprocess.run(python(*words), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("{}", "")
    child = python("-c", "import os; print(os.environ.get('PYTHONSAFEPATH'))")
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    assert subprocess.run(child, env=inherited, capture_output=True, text=True, timeout=60).stdout == "None\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python spawns with its current folder on the path")
def test_workers_of_a_conversion_find_the_named_module_and_nothing_else(beside: Path) -> None:
    for name in ("pickle", "struct", "socket"):  # which a spawned process reads before it is told anything
        (beside / f"{name}.py").write_text((beside / "json.py").read_text())
    (beside / "mine.py").write_text(
        "import os\nimport numpy as np\nclass Mine:\n    def __len__(self):\n        return 600\n"
        "    def __getitem__(self, index):\n        assert 'PYTHONSAFEPATH' not in os.environ\n"
        "        return np.full((4,), index % 256, 'u1'), index\n"
    )
    _fleet(beside, "convert", "mine:Mine", "new.h5", "--workers", "2")
    assert _ran(beside) == ""
