"""What killed runs leave on the node is removed by the next start, and nothing else is."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fleet.machine.launch.leftovers import Note, sweep, write_note
from preprocess.ring.shared_memory import namespace
from tests.live.support.ensembles import Ensemble, mlp, write_ensemble
from tests.live.support.processes import Running, run, started

REMOVED = "removed what killed runs had left"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder of the test's own for shared memory: other runs of this machine clean up, too."""
    place = tmp_path / "shm"
    place.mkdir()
    return place


def variables(place: Path) -> dict[str, str]:
    return {
        "OMPI_MCA_osc_sm_backing_directory": str(place),
        "OMPI_MCA_btl_sm_backing_directory": str(place),
        "TMPDIR": str(place.parent),
    }


@pytest.fixture
def ensemble(tmp_path: Path) -> Ensemble:
    return write_ensemble(tmp_path / "ensemble", [mlp()])


def begun(running: Running, ensemble: Ensemble, out: str) -> Running:
    """Wait until the rings are there and a trainer reads from them; the run is held back after that."""
    folder = ensemble.left(out)
    running.wait_for(lambda: bool(folder.events("formed")), "a group")
    return running


def held(place: Path) -> dict[str, str]:
    return {**variables(place), "GATE": str(place / "never"), "GATE_AFTER": "0"}


def files_of(place: Path) -> set[Path]:
    """MPI's files and notes in shared memory, and the launchers' folders."""
    return {*place.iterdir(), *place.parent.glob("ompi.*"), *place.parent.glob("fleet-????????")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", pytest.param("under mpiexec", marks=pytest.mark.slow)])
def test_next_start_removes_what_a_run_left_that_was_killed_whole(ensemble: Ensemble, shared: Path, kind: str) -> None:
    """All ranks and the launcher at once, while there is a ring: nobody had the time to remove anything."""
    command = ensemble.plain("run") if kind == "plain" else ensemble.under_mpiexec(2, "run")
    with started(command, ensemble.folder, **held(shared)) as running:
        begun(running, ensemble, "run").kill()
    left = files_of(shared)
    assert any(path.name.startswith("sm_segment.") for path in left), "nothing is left to remove"
    assert any(path.name.startswith("ompi.") for path in left)
    ended = run(command, ensemble.folder, **variables(shared))
    assert ended.code == 0, ended.output
    assert ended.output.count(REMOVED) == 1, ended.output
    assert not files_of(shared)


@pytest.mark.slow
def test_living_runs_keep_theirs(ensemble: Ensemble, shared: Path, tmp_path: Path) -> None:
    """One run is killed and another one lives on while a third starts."""
    other = write_ensemble(tmp_path / "other", [mlp()])
    gate = tmp_path / "gate"
    with started(ensemble.plain("living"), ensemble.folder, **held(shared) | {"GATE": str(gate)}) as living:
        begun(living, ensemble, "living")
        its = files_of(shared)
        with started(other.plain("killed"), other.folder, **held(shared)) as killed:
            begun(killed, other, "killed").kill()
        assert files_of(shared) > its
        third = run(other.plain("third"), other.folder, **variables(shared))
        assert third.code == 0 and REMOVED in third.output, third.output
        assert files_of(shared) == its
        gate.touch()
        assert living.finish().code == 0, living.output
    assert not files_of(shared)


@pytest.fixture
def place(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMPI_MCA_osc_sm_backing_directory", str(shared))
    return shared


def dead_note(place: Path, *made: Path, space: int | None = None) -> Path:
    """The note of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    path = place / f"fleet.{os.geteuid()}.{child.pid}.note"
    values = {"pid": child.pid, "started": 1, "namespace": namespace() if space is None else space}
    path.write_text(json.dumps(values | {"made": list(map(str, made))}))
    return path


def test_only_files_of_mpi_in_shared_memory_are_removed(place: Path, tmp_path: Path) -> None:
    """Whatever stands in a note."""
    segment, precious, outside = place / "sm_segment.node.0.1.0", place / "precious", tmp_path / "sm_segment.elsewhere"
    folder, launch = tmp_path / "data", tmp_path / "fleet-abcd_123"
    for path in (segment, precious, outside):
        path.write_bytes(b"x" * 5000)
    for path in (folder, launch):
        path.mkdir()
        (path / "file").touch()
    link = place / "sm_segment.link"
    link.symlink_to(precious)
    note = dead_note(place, segment, precious, outside, folder, launch, link)
    assert "1 files of shared memory (0.0 MiB) and 1 folders" in sweep()
    assert {path for path in (segment, precious, outside, folder, launch, link) if path.exists()} == {
        precious, outside, folder, link,
    }  # fmt: skip
    assert note.exists() and sweep() == ""


def test_what_a_living_process_maps_or_notes_stays(place: Path) -> None:
    mapped, noted, free = (place / f"sm_segment.{name}" for name in ("mapped", "noted", "free"))
    for path in (mapped, noted, free):
        path.write_bytes(bytes(4096))
    dead_note(place, mapped, noted, free)
    own = write_note([noted])
    program = (
        f"import mmap; f = open({str(mapped)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print(1, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert sweep() and [path.exists() for path in (mapped, noted, free)] == [True, True, False]
        child.kill()
    own.remove()
    assert sweep() and not mapped.exists() and not noted.exists()
    assert not list(place.iterdir())


def test_processes_of_another_container_are_not_taken_for_dead(place: Path) -> None:
    """Their ids mean nothing here, and they may share this folder."""
    segment = place / "sm_segment.theirs"
    segment.touch()
    dead_note(place, segment, space=1)
    assert sweep() == "" and segment.exists()


def test_a_session_whose_launcher_lives_stays(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / f"ompi.{os.getpid()}"
    folder.mkdir()
    dead_note(place, folder)
    assert sweep() == "" and folder.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "started": 2, "namespace": 3}'])
def test_notes_that_are_none_are_passed_over(place: Path, content: str) -> None:
    (place / f"fleet.{os.geteuid()}.1.note").write_text(content)
    assert sweep() == ""


def test_a_note_follows_no_link(place: Path, tmp_path: Path) -> None:
    """Everybody may write into shared memory, and process ids can be guessed."""
    precious = tmp_path / "precious"
    precious.write_text("gold")
    for ending in ("note", "new"):
        (place / f"fleet.{os.geteuid()}.{os.getpid()}.{ending}").symlink_to(precious)
    note = write_note([])
    assert precious.read_text() == "gold"
    assert not note.path.is_symlink() and stat.S_IMODE(note.path.stat().st_mode) == 0o600


def test_a_note_that_cannot_be_written_is_none(place: Path) -> None:
    (place / f"fleet.{os.geteuid()}.{os.getpid()}.note").mkdir()
    write_note([]).remove()
    assert [path.suffix for path in place.iterdir()] == [".note"]


def test_a_note_says_who_wrote_it(place: Path) -> None:
    note: Note = write_note([place / "sm_segment.mine"])
    assert note.path.exists() and note.pid == psutil.Process().pid and not note.is_dead
    note.remove()
    assert not note.path.exists()
