"""Data and code that changed under a run: found in whatever way they did, refused by name, and accepted if asked."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.numbered import fingerprints as twelve
from fleet.models.provenance import Fingerprints, changes_between, changes_on_disk, code_in
from fleet.spec import load
from fleet.spec.digest import code_changes, code_of
from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.files.modules import at_home
from preprocess.making import fingerprints as file_fingerprints
from preprocess.making.fingerprints import data_changes, file_changes, fingerprint, fingerprint_files, unproved_changes

BAD_INPUT = 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an ensemble in `spec`, and a run of it in `r`."""
    folder = tmp_path_factory.mktemp("trained")
    twelve.begun(folder)
    return folder


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, for changes."""
    shutil.copytree(trained, tmp_path / "copy")
    noted = tmp_path / "copy" / "r" / "ensemble.json"
    noted.write_text(noted.read_text().replace(str(trained), str(tmp_path / "copy")))
    return tmp_path / "copy"


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "r" / "journal.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == kind]


def rows_of(array: np.ndarray) -> DatasetSpec:
    return DatasetSpec("d", SourceSpec(list(zip(array, range(len(array))))))


@pytest.mark.parametrize("change", [each for each in twelve.CHANGES if "folder" not in each])
def test_each_change_is_found(trained: Path, tmp_path: Path, change: str) -> None:
    """By files and code alone, as `fleet add` and `fleet replay` look for them; each names what was trained on it."""
    shutil.copytree(trained / "spec", tmp_path / "spec")
    spec = load(tmp_path / "spec" / "d.yaml")
    journal = trained / "r" / "journal.jsonl"
    with at_home(spec.folder):
        twelve.CHANGES[change](tmp_path / "spec")
        found = changes_on_disk(journal, spec)
    inside = change in ("a byte of a file that a class of one's own opens", "a row less there")  # told by its samples
    assert bool(found) != inside
    assert all(each.jobs and set(each.jobs) <= {"a", "b"} for each in found)


def test_a_run_is_refused_by_name_goes_on_if_asked_and_remembers(copy: Path) -> None:
    twelve.CHANGES["a byte of a file that a class of one's own opens"](copy / "spec")
    twelve.CHANGES["a line of the loss"](copy / "spec")
    told = twelve.fleet(copy, "run", "spec/d.yaml", "--out", "r")
    assert told.returncode == BAD_INPUT
    assert "own" in told.stderr and "losses.py changed" in told.stderr and "--accept-changes" in told.stderr
    assert len(events(copy, "session")) == 1, "the journal was touched"
    told = twelve.fleet(copy, "extend", "r", "b", "--epochs", "2")
    assert told.returncode == BAD_INPUT and not (copy / "r" / "extended.json").exists()
    told = twelve.fleet(copy, "run", "spec/d.yaml", "--out", "r", "--accept-changes")
    assert told.returncode == 0, told.stderr
    accepted = events(copy, "fingerprints")[-1]["accepted"]
    assert {name: epochs for each in accepted for name, epochs in each["jobs"].items()} == {"a": 1, "b": 1}
    told = twelve.fleet(copy, "run", "spec/d.yaml", "--out", "r")
    assert told.returncode == 0, "it was accepted, and is what the run has now"
    told = twelve.fleet(copy, "replay", "r", "a")
    assert "losses.py changed: accepted, so that it was trained on that from epoch 2 on" in told.stderr


def test_the_current_folder_does_not_matter(copy: Path) -> None:
    """A folder with data of the same names, from which the same command is given: the spec's are taken."""
    elsewhere = copy / "elsewhere"
    elsewhere.mkdir()
    for name in ("train.npz", "own.npy", "held.npz", "own_held.npy"):
        shutil.copy(copy / "spec" / "own_held.npy", elsewhere / name)
    told = twelve.fleet(elsewhere, "run", "../spec/d.yaml", "--out", "../r")
    assert told.returncode == 0, told.stderr
    first = json.loads((copy / "r" / "run.json").read_text())["jobs"]
    told = twelve.fleet(elsewhere, "run", "../spec/d.yaml", "--out", "anew")
    assert told.returncode == 0, told.stderr
    anew = json.loads((elsewhere / "anew" / "run.json").read_text())["jobs"]
    assert {name: job["metrics"] for name, job in anew.items()} == {n: job["metrics"] for n, job in first.items()}
    assert not (copy / "spec" / "anew").exists()


def test_data_beside_the_current_folder_alone_are_refused_with_the_mend(tmp_path: Path) -> None:
    (tmp_path / "spec").mkdir()
    twelve.make(tmp_path / "spec")
    shutil.move(tmp_path / "spec" / "train.npz", tmp_path / "train.npz")
    for command in ("run", "plan"):
        told = twelve.fleet(tmp_path, command, "spec/d.yaml")
        assert told.returncode == BAD_INPUT
        assert "data.d.train.arguments.path" in told.stderr and "write ../train.npz" in " ".join(told.stderr.split())


def test_a_mend_of_what_nothing_was_trained_on_is_no_change(copy: Path) -> None:
    """A network that failed in its first epoch may be mended."""
    spec = load(copy / "spec" / "d.yaml")
    before = Fingerprints(code=code_in(spec, list(spec.jobs)), epochs={"a": 1})
    twelve.CHANGES["a line of the data set and of a transform"](copy / "spec")
    now = Fingerprints(code=code_in(spec, list(spec.jobs)))
    (found,) = changes_between(before, now, spec)
    assert "mine.py" in found.what and not found.jobs


@pytest.mark.parametrize("where", [0, 4095, 1_000_000])
def test_a_byte_anywhere_in_a_small_file_counts_though_its_time_stays(tmp_path: Path, where: int) -> None:
    path = tmp_path / "data.bin"
    content = bytearray(1_000_001)
    path.write_bytes(content)
    told = path.stat()
    before = fingerprint_files({"path": str(path)})
    content[where] = 1
    path.write_bytes(content)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert list(file_changes(before, fingerprint_files({"path": str(path)}))) == [
        f"{path} has the same size and other bytes"
    ]


def test_times_alone_are_no_change_and_told_where_bytes_were_not_all_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(3 << 20))
    whole = fingerprint_files(str(path))
    os.utime(path, ns=(1, 1))
    assert not list(file_changes(whole, fingerprint_files(str(path))))
    assert not file_fingerprints.unproved(whole, fingerprint_files(str(path)))
    monkeypatch.setattr(file_fingerprints, "MOST_WHOLE", 1 << 20)
    before = fingerprint_files(str(path))
    os.utime(path, ns=(2, 2))
    now = fingerprint_files(str(path))
    assert not list(file_changes(before, now))
    assert file_fingerprints.unproved(before, now) == [str(path)]


def test_of_many_files_each_counts_and_the_run_itself_does_not(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number:03}.bin").write_bytes(bytes([number % 256]))
    (tmp_path / "run").mkdir()
    before = fingerprint_files(str(tmp_path), [str(tmp_path / "run")])
    (tmp_path / "run" / "journal").write_text("more")
    assert fingerprint_files(str(tmp_path), [str(tmp_path / "run")]) == before
    (tmp_path / "599.bin").write_bytes(b"x")
    (told,) = file_changes(before, fingerprint_files(str(tmp_path), [str(tmp_path / "run")]))
    assert "of further files" in told
    (tmp_path / "001.bin").unlink()
    assert any("001.bin is no longer there" in text for text in file_changes(before, fingerprint_files(str(tmp_path))))


def test_samples_of_ones_own_are_compared_and_those_that_differ_each_time_are_not() -> None:
    rows = np.arange(40.0).reshape(20, 2)
    before = fingerprint(Dataset(rows_of(rows)))
    assert not list(data_changes(before, fingerprint(Dataset(rows_of(rows.copy())), before)))
    rows[13, 1] += 1
    assert before["train"]["drawn"] == 20
    (told,) = data_changes(before, fingerprint(Dataset(rows_of(rows)), before))
    assert "20 of which were compared" in told

    class Drawn:
        def __init__(self) -> None:
            self.rng = np.random.default_rng()

        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            return self.rng.normal(size=2), 0

    drawn = [fingerprint(Dataset(DatasetSpec("d", SourceSpec(Drawn())))) for _ in range(2)]
    assert drawn[0]["train"]["samples"] is None and not list(data_changes(*drawn))
    assert not list(unproved_changes(*drawn))


def test_code_counts_with_all_that_it_imports_beside_it_and_nothing_that_is_installed(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("import torch\nimport json\nfrom . import deep\nfrom trainers import Stop\n")
    (package / "deep.py").write_text("def late():\n    import beside\n")
    (tmp_path / "beside.py").write_text("import pack.net\n")
    (tmp_path / "torch.py").write_text("raise SystemExit\n")
    found = code_of(["pack.net:Net", "torch.nn:Linear", "none:Such"], tmp_path)
    assert set(found) == {"pack.net:Net"}
    assert set(found["pack.net:Net"]) == {"pack/__init__.py", "pack/net.py", "pack/deep.py", "beside.py"}
    (tmp_path / "beside.py").write_text("import pack.net\n# a word\n")
    now = code_of(["pack.net:Net"], tmp_path)
    assert code_changes(found, now) == {"beside.py changed": {"pack.net:Net"}}
