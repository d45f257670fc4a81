"""What lies where data are read or written and is no file of numbers: code, pipes, links that somebody laid."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from PIL import Image

from preprocess import SourceError, open_source
from preprocess.conversion.convert import convert
from preprocess.conversion.packing import ConversionError
from tests.preprocess.support.commanded import wait_for_end_of_service
from tests.warm.starting import python_path

OTHER = 12345  # a user whom nobody is
PICKLE = {"id": "pickle", "protocol": 5}


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "a")


def store(path: Path, **metadata: Any) -> None:
    """A Zarr store of format 2 whose array `t` has chunks that run code where its filters unpickle."""
    chunk = pickle.dumps([Touch(path.parent / "RAN")] + [0] * 9 + ["|O", (10,)], protocol=5)
    noted: dict[str, Any] = {"zarr_format": 2, "shape": [20], "chunks": [10], "dtype": "<i4", "compressor": None}
    (path / "t").mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    noted |= {"fill_value": 0, "order": "C", "filters": None}
    (path / "t" / ".zarray").write_text(json.dumps(noted | metadata))
    for part in "01":
        (path / "t" / part).write_bytes(chunk)


@pytest.mark.parametrize(
    "metadata",
    [
        {"filters": [PICKLE]},
        {"compressor": PICKLE},
        {"filters": [{"id": "json2"}]},
        {"filters": [{"id": "delta", "dtype": "<i4"}, {"id": "categorize", "labels": ["a"], "dtype": "O"}]},
        {"filters": "pickle"},
        {"filters": [{"name": "pickle"}]},
        {"dtype": [["a", "|O"]], "filters": [PICKLE], "fill_value": "gASVAAAAAA=="},
    ],
)
def test_codecs_that_may_run_code_are_refused(tmp_path: Path, metadata: dict[str, Any]) -> None:
    store(tmp_path / "a.zarr", **metadata)
    with pytest.raises(SourceError, match="a.zarr/t/.zarray.*none of those that hold numbers"):
        open_source("zarr", {"path": str(tmp_path / "a.zarr"), "inputs": "t", "targets": "t"}).read(0)
    assert not (tmp_path / "RAN").exists()


@pytest.mark.skipif(zarr.__version__.startswith("2"), reason="zarr 2 reads no format 3")
def test_codecs_within_others_are_refused(tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=3)
    group.create_array("t", shape=(20,), chunks=(5,), shards=(10,), dtype="i4")[...] = 1
    given = {"path": str(tmp_path / "a.zarr"), "inputs": "t", "targets": "t"}
    assert open_source("zarr", given).read(0)[1] == 1
    metadata = tmp_path / "a.zarr" / "t" / "zarr.json"
    noted = json.loads(metadata.read_text())
    noted["codecs"][0]["configuration"]["codecs"][-1] = {"name": "numcodecs.pickle", "configuration": {}}
    metadata.write_text(json.dumps(noted))
    with pytest.raises(SourceError, match="zarr.json.*none of those that hold numbers"):
        open_source("zarr", given)


@pytest.mark.parametrize("name", ["/t", "../decoy/t", "t/../u", "./t", "t//", "a\\t", "..\\decoy\\t", ""])
def test_names_that_lead_out_of_a_store_are_refused(tmp_path: Path, name: str) -> None:
    store(tmp_path / "a.zarr", filters=[PICKLE])
    store(tmp_path / "decoy")
    for given in (name, str(tmp_path / "decoy" / "t")):
        with pytest.raises(SourceError, match="leads out of the store|names a variable"):
            open_source("zarr", {"path": str(tmp_path / "a.zarr"), "inputs": given, "targets": given})


def test_what_consolidated_metadata_say_does_not_count(tmp_path: Path) -> None:
    """They may say that another array, or one called as a group's attributes are, has no pickles."""
    folder = tmp_path / "a.zarr"
    store(folder, filters=[PICKLE])
    (folder / "t").rename(folder / "attributes")
    noted = json.loads((folder / "attributes" / ".zarray").read_text())
    said = {".zgroup": {"zarr_format": 2}, "attributes/.zarray": noted | {"filters": None}, "attributes/.zattrs": {}}
    (folder / ".zmetadata").write_text(json.dumps({"zarr_consolidated_format": 1, "metadata": said}))
    with pytest.raises(SourceError, match="attributes/.zarray.*none of those that hold numbers"):
        open_source("zarr", {"path": str(folder), "inputs": "attributes", "targets": "attributes"})


def pictures(folder: Path) -> None:
    for label in "ab":
        (folder / label).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(folder / label / "0.png")


def image_in(folder: Path) -> tuple[Path, str, dict[str, Any]]:
    pictures(folder)
    return folder / "a" / "1.png", "image_folder", {"path": str(folder)}


def chunk_in(folder: Path) -> tuple[Path, str, dict[str, Any]]:
    store(folder / "a.zarr")
    return folder / "a.zarr" / "t" / "0", "zarr", {"path": str(folder / "a.zarr"), "inputs": "t", "targets": "t"}


def metadata_in(folder: Path) -> tuple[Path, str, dict[str, Any]]:
    place, kind, given = chunk_in(folder)
    return place.parent / ".zarray", kind, given


def state_in(folder: Path) -> tuple[Path, str, dict[str, Any]]:
    return folder / "state.json", "arrow", {"path": str(folder), "inputs": "x", "targets": "y"}


def in_folder(kind: str, name: str, **more: Any) -> Callable[[Path], tuple[Path, str, dict[str, Any]]]:
    return lambda folder: (folder / name, kind, {"path": str(folder), **more})


def alone(kind: str, *arguments: str, **more: Any) -> Callable[[Path], tuple[Path, str, dict[str, Any]]]:
    return lambda folder: (folder / "x", kind, {name: str(folder / "x") for name in arguments} | more)


COLUMNS = {"inputs": "x", "targets": "y"}
PLACES = {
    "image": image_in,
    "chunk": chunk_in,
    "metadata": metadata_in,
    "state": state_in,
    "shard in a folder": in_folder("tar", "a.tar"),
    "parquet in a folder": in_folder("parquet", "a.parquet", **COLUMNS),
    "lmdb in a folder": in_folder("lmdb", "data.mdb"),
    "idx": alone("idx", "images", "labels"),
    "npy": alone("numpy", "inputs", "targets"),
    "npz": alone("numpy", "path"),
    "hdf5": alone("hdf5", "path"),
    "netcdf": alone("netcdf", "path", **COLUMNS),
    "lmdb": alone("lmdb", "path"),
    "tokens": alone("tokens", "path", context=4),
    "tar": alone("tar", "path"),
    "parquet": alone("parquet", "path", **COLUMNS),
    "arrow": alone("arrow", "path", **COLUMNS),
}


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # the whole path is too long for a socket
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "lay", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), bound_socket], ids=["pipe", "device", "socket"]
)
@pytest.mark.timeout(60)
def test_what_is_no_file_is_refused_by_name(tmp_path: Path, place: str, lay: Callable[[Path], None]) -> None:
    path, kind, given = PLACES[place](tmp_path)
    path.unlink(missing_ok=True)
    lay(path)
    with pytest.raises(SourceError, match=f"{path}'.*is a (named pipe|device|socket) and not a regular file"):
        open_source(kind, given).read(0)


def test_links_that_lead_round_in_a_circle_have_an_end(tmp_path: Path) -> None:
    pictures(tmp_path)
    for name in ("x", "y", "z"):
        (tmp_path / "a" / name).symlink_to("..")
    with pytest.raises(SourceError, match="links lead to its folder more than 16 times; remove this link"):
        open_source("image_folder", {"path": str(tmp_path)})


def shard(folder: Path) -> Path:
    import tarfile

    path = folder / "a.tar"
    pictures(folder / "made")
    (folder / "0.cls").write_text("1")
    with tarfile.open(path, "w") as made:
        made.add(folder / "made" / "a" / "0.png", "0.png")
        made.add(folder / "0.cls", "0.cls")
    return path


def test_an_index_is_not_written_through_a_link(tmp_path: Path) -> None:
    path, victim = shard(tmp_path), tmp_path / "victim"
    victim.write_text("precious")
    Path(f"{path}.index").symlink_to(victim)
    assert open_source("tar", {"path": str(path)}).read(0)[1] == 1
    assert victim.read_text() == "precious"
    assert np.load(f"{path}.index")["offsets"].shape == (1,), "the link is replaced"


@pytest.mark.parametrize("rows, dtype", [(1 << 26, "|u1"), (40, "<i8")])
def test_an_index_that_claims_more_samples_than_its_shard_has_is_made_anew(
    tmp_path: Path, rows: int, dtype: str
) -> None:
    path = shard(tmp_path)
    open_source("tar", {"path": str(path)})
    kept = Path(f"{path}.index")
    with np.load(kept) as arrays:
        stamp = arrays["stamp"]
    zeros = np.zeros(rows, dtype)
    np.savez_compressed(str(tmp_path / "new"), stamp=stamp, offsets=zeros, sizes=zeros, labels=zeros)
    os.replace(tmp_path / "new.npz", kept)
    assert len(open_source("tar", {"path": str(path)})) == 1


@pytest.mark.parametrize("name", ["a.h5.partial", "a.h5.partial.progress"])
def test_a_conversion_is_not_written_through_a_link(tmp_path: Path, name: str) -> None:
    pictures(tmp_path / "data")
    victim = tmp_path / "victim"
    victim.write_text("")
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(ConversionError, match=f"{name}': is a link, and is not written through; remove it"):
        convert(tmp_path / "data", tmp_path / "a.h5", workers=1)
    assert victim.read_text() == "" and not (tmp_path / "a.h5").exists()
    (tmp_path / name).unlink()
    (tmp_path / "a.h5").symlink_to(victim)
    convert(tmp_path / "data", tmp_path / "a.h5", workers=1, force=True)
    assert victim.read_text() == "" and not (tmp_path / "a.h5").is_symlink()


def test_a_trial_imports_nothing_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inputs"], file["targets"] = np.zeros((4, 3), np.uint8), np.arange(4)
    for name in ("h5py", "numpy", "psutil", "random", "preprocess"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", python_path())
    assert len(open_source("hdf5", {"path": "a.h5"})) == 4
    assert not (tmp_path / "RAN").exists()


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder for all, whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="t-") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


FIND = "import sys; from preprocess.sharing.launch import ServicePlace; print(ServicePlace.of('x').folder)"


def folders_found(temporary: Path, home: Path, processes: int) -> set[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    environment |= {"TMPDIR": str(temporary), "HOME": str(home), "PYTHONPATH": python_path()}
    command = [sys.executable, "-c", FIND]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return {process.communicate()[0].strip() for process in started}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of other users")
def test_processes_find_each_other_though_somebody_took_the_name_of_their_folder(
    everybodys: Path, tmp_path: Path
) -> None:
    taken = everybodys / f"shared-loader-{os.getuid()}"
    taken.mkdir()
    os.chown(taken, OTHER, OTHER)
    (found,) = folders_found(everybodys, tmp_path, 8)
    assert Path(found).stat().st_mode & 0o777 == 0o700 and Path(found) != taken
    assert (tmp_path / ".cache/shared-loader/secret").stat().st_mode & 0o777 == 0o600
    shutil.rmtree(found)  # others have seen this name
    os.mkdir(found)
    os.chown(found, OTHER, OTHER)
    (other,) = folders_found(everybodys, tmp_path, 4)
    assert other not in (found, str(taken))
    taken.rmdir()
    assert folders_found(everybodys, tmp_path, 2) == {other}, "whoever comes later finds those before"


def test_processes_agree_on_the_plain_name_where_nobody_took_it(everybodys: Path, tmp_path: Path) -> None:
    assert folders_found(everybodys, tmp_path, 6) == {str(everybodys / f"shared-loader-{os.getuid()}")}
    assert not (tmp_path / ".cache").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of other users")
def test_a_loader_works_beside_a_folder_that_somebody_laid(everybodys: Path, tmp_path: Path) -> None:
    taken = everybodys / f"shared-loader-{os.getuid()}"
    np.save(everybodys / "a.npy", np.arange(100))
    arrays = {"inputs": str(everybodys / "a.npy"), "targets": str(everybodys / "a.npy")}
    data = {"name": "numbers", "train": {"source": "numpy", "arguments": arrays}}
    taken.symlink_to(tmp_path)
    os.lchown(taken, OTHER, OTHER)
    program = (
        "import json, sys; from preprocess import SharedLoader; "
        "loader = SharedLoader(json.loads(sys.argv[1]), 8, linger=0.0); print(len(list(loader))); loader.close()"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    environment |= {"TMPDIR": str(everybodys), "HOME": str(tmp_path / "home"), "PYTHONPATH": python_path()}
    ended = subprocess.run(
        [sys.executable, "-c", program, json.dumps(data)], env=environment, capture_output=True, text=True
    )
    assert ended.stdout.strip() == "13", ended.stderr
    (folder,) = (path for path in everybodys.iterdir() if path != taken and path.name.startswith("shared-loader"))
    wait_for_end_of_service(folder.parent)
    assert list(tmp_path.iterdir()) == [tmp_path / "home"], "nothing is written where the link leads"
