"""Samples that cannot be made, and sources that never come back, in whole runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import trainers
from tests.live.support import faulty_sources
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import (
    BATCH,
    LEARNING_RATE,
    STEPS,
    WORKERS,
    Ensemble,
    RunFolder,
    cnn,
    counting,
    mlp,
    pictures,
    write_ensemble,
)
from tests.live.support.processes import Ended, run, started

TRAINING, HELD_OUT = [5, 40, 41], [20]
JOBS = ("mlp", "cnn", "count")
SUNK = "lies at the bottom of the sea"
EPOCHS = 4
SOON = 60.0  # seconds; a wait that is not bounded lasts for ever


def torn(folder: Path, train: list[int] = TRAINING, held_out: list[int] = HELD_OUT, **keys: Any) -> Ensemble:
    """Three networks on pictures of which some cannot be read."""
    data = pictures({"broken": train}, {"broken": held_out}) | keys
    jobs = [{**job, "stop": {"epochs": EPOCHS}} for job in (mlp(), cnn(), counting())]
    return write_ensemble(folder, jobs, data={"pictures": data})


@pytest.fixture(scope="module")
def skipping(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    return torn(tmp_path_factory.mktemp("skipping"), on_corrupt="skip")


@pytest.fixture(scope="module")
def ended(skipping: Ensemble) -> Ended:
    return run(skipping.plain("alone"), skipping.folder)


@pytest.fixture(scope="module")
def skipped(skipping: Ensemble, ended: Ended) -> RunFolder:
    assert ended.code == 0, ended.output
    return skipping.left("alone")


def told_of(folder: RunFolder) -> list[tuple[str, int]]:
    return sorted((event["kind"], event["sample"]) for event in folder.events("skipped"))


def test_run_goes_on_without_them_and_says_so(skipped: RunFolder, ended: Ended) -> None:
    assert told_of(skipped) == [("held_out", 20), ("train", 5), ("train", 40), ("train", 41)]
    assert skipped.summary["status"] == "done" and skipped.summary["skipped_samples"] == {"pictures": 4}
    assert "4 samples were skipped as corrupt" in ended.output
    page = (skipped.path / "report.html").read_text()
    assert "Skipped samples" in page and f"picture 40 {SUNK}" in page
    for event in skipped.events("skipped"):
        assert event["data"] == "pictures" and event["stage"] == "source" and SUNK in event["reason"]
        assert event["substitute"] not in (TRAINING if event["kind"] == "train" else HELD_OUT)


def test_each_batch_is_full_and_no_corrupt_sample_is_in_it(skipped: RunFolder) -> None:
    """The counting network's books: its loss sinks them by the learning rate a picture, over two virtual workers."""
    saved = trainers.read(Path(skipped.summary["jobs"]["count"]["checkpoint"]))
    times = (-saved.parameters["seen"].double() / (LEARNING_RATE / WORKERS)).tolist()
    assert all(times[picture] == 0 for picture in TRAINING)
    assert min(times[picture] for picture in range(79) if picture not in TRAINING) >= EPOCHS
    assert sum(times) == EPOCHS * STEPS * WORKERS * BATCH


@pytest.mark.slow
def test_bits_depend_on_no_ranks(skipping: Ensemble, skipped: RunFolder) -> None:
    command = skipping.plain("more", "--trainers", "2", "--preprocessors", "2", "--policy", "local")
    ended = run(command, skipping.folder)
    assert ended.code == 0, ended.output
    more = skipping.left("more")
    assert told_of(more) == told_of(skipped)
    assert_same_bits(final_states(more, JOBS), final_states(skipped, JOBS))


@pytest.mark.slow
def test_skipped_samples_stay_skipped_when_the_run_goes_on(
    skipped: RunFolder, tmp_path: Path, skipping: Ensemble
) -> None:
    """The files are mended while the run is down; what it saw before and after must still be one data set."""
    ensemble = torn(tmp_path, on_corrupt="skip")
    folder, gate = ensemble.left("run"), {"GATE": str(tmp_path / "never"), "GATE_AFTER": "2"}
    with started(ensemble.plain("run"), tmp_path, **gate) as running:
        running.wait_for(lambda: len(folder.events("checkpoint", "mlp")) >= 2, "two checkpoints")
        running.kill()
    before = told_of(folder)
    assert before and not folder.events("done")
    mend(ensemble)
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 0, ended.output
    assert told_of(folder) == before == told_of(skipped)
    assert folder.summary["skipped_samples"] == {"pictures": 4}
    assert_same_bits(final_states(folder, JOBS), final_states(skipped, JOBS))


def mend(ensemble: Ensemble) -> None:
    module = ensemble.folder / "parts.py"
    module.write_text(module.read_text().replace("frozenset(broken)", "frozenset()"))


@pytest.mark.slow
def test_one_too_many_ends_the_run_until_the_limit_is_raised(tmp_path: Path) -> None:
    ensemble = torn(tmp_path, train=list(range(30, 40)), on_corrupt="skip", corrupt_limit=3)
    for _ in range(2):  # the second finds more than it may have at its start
        ended = run(ensemble.plain("run"), tmp_path, SOON)
        assert ended.code == 1, ended.output
        assert "the 3 of corrupt_limit" in ended.output and SUNK in ended.output
        assert "raise corrupt_limit" in ended.output and "Traceback" not in ended.output, ended.output
    folder = ensemble.left("run")
    assert len(folder.events("skipped")) == 4 and folder.summary["skipped_samples"] == {"pictures": 4}
    ended = run(ensemble.plain("run", "--set", "data.pictures.corrupt_limit=11"), tmp_path)
    assert ended.code == 0, ended.output
    assert len(folder.events("skipped")) == 11
    ended = run(ensemble.plain("run", "--set", "data.pictures.corrupt_limit=10"), tmp_path)
    assert ended.code == 1 and "the 10 of corrupt_limit" in ended.output, ended.output


@pytest.mark.slow
def test_run_that_ended_at_a_sample_goes_on_once_it_may_be_skipped(tmp_path: Path, skipped: RunFolder) -> None:
    ensemble = torn(tmp_path)
    ended = run(ensemble.plain("run"), tmp_path, SOON)
    assert ended.code == 1 and SUNK in ended.output, ended.output
    assert "set data.pictures.on_corrupt to skip" in ended.output and "Traceback" not in ended.output, ended.output
    ended = run(ensemble.plain("run", "--set", "data.pictures.on_corrupt=skip"), tmp_path)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(ensemble.left("run"), JOBS), final_states(skipped, JOBS))


LIMIT = {"on_corrupt": "skip", "corrupt_limit": 2}


@pytest.mark.parametrize(("preprocessors", "keys", "said"), [(2, {}, SUNK), (1, LIMIT, "the 2 of corrupt_limit")])
def test_torn_data_fail_those_who_read_them_and_nobody_else(
    tmp_path: Path, preprocessors: int, keys: dict[str, Any], said: str
) -> None:
    """The others go on with new ranks, which do not ask for these data again; their samples are not even measured."""
    data = {"pictures": pictures({"broken": TRAINING}) | keys, "whole": pictures()}
    jobs = [{**mlp(), "data": "whole"}, {**cnn(), "data": "pictures"}, {**counting(), "data": "pictures"}]
    ensemble = write_ensemble(tmp_path, [{**job, "stop": {"epochs": EPOCHS}} for job in jobs], data=data)
    options = ("--trainers", "2", "--preprocessors", str(preprocessors), "--policy", "local")
    ended = run(ensemble.plain("run", *options), tmp_path, SOON)
    folder = ensemble.left("run")
    assert ended.code == 1 and "the same command goes on without cnn, count" in ended.output, ended.output
    assert {name: job["status"] for name, job in folder.summary["jobs"].items()} == {
        "mlp": "done", "cnn": "failed", "count": "failed",
    }  # fmt: skip
    assert all(said in folder.summary["jobs"][name]["error"] for name in ("cnn", "count"))
    assert "Traceback" not in ended.output and len(folder.events("session")) == 2
    alone = write_ensemble(tmp_path / "alone", [{**mlp(), "data": "whole", "stop": {"epochs": EPOCHS}}], data=data)
    ended = run(alone.plain("run"), alone.folder)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(folder, ("mlp",)), final_states(alone.left("run"), ("mlp",)))


def test_code_that_fails_for_every_sample_is_told_at_once(tmp_path: Path) -> None:
    ensemble = torn(tmp_path, train=list(range(1, 79)), on_corrupt="skip", corrupt_limit=1000)
    ended = run(ensemble.plain("run"), tmp_path, SOON)
    assert ended.code == 1, ended.output
    assert "others could be made in its place" in ended.output and SUNK in ended.output
    assert "parts.py" in ended.output and "Traceback" not in ended.output, "the lines of one's own code, and no others"


def faulty(folder: Path, part: str, source: str, **arguments: Any) -> Ensemble:
    """A network on a source of faulty_sources as its training or held-out part; its ranks wait four seconds."""
    shutil.copy(faulty_sources.__file__, folder)
    data = pictures() | {part: {"source": f"faulty_sources:{source}", "arguments": arguments}}
    resources = {"trainers": 1, "device": "cpu", "ring_samples": 128, "slot_samples": 8, "timeout": 4.0}
    return write_ensemble(folder, [mlp()], data={"pictures": data}, resources=resources)


OPENING = "has been opening the data for 4 s"
READ, MEASURED = ("preprocessor {} (process", "for 4 s", "raise resources.timeout"), "preprocessors of rank {}"
# what is stuck -> the part of the data, where, on which rank, with Python's lock kept, and what is said
STUCK: dict[str, tuple[str, str, int, bool, tuple[str, ...]]] = {
    "rank 0 while it reads": ("held_out", "read", 0, False, READ),
    "rank 1 while it reads": ("held_out", "read", 1, False, READ),
    "all of rank 0 while it reads": ("held_out", "read", 0, True, (*READ, "rank 0 has said nothing")),
    "rank 1 while it is measured": ("train", "read", 1, False, (MEASURED, "raise resources.timeout")),
    "all of rank 0 while it is measured": ("train", "read", 0, True, ("rank 0 has said nothing",)),
    "rank 1 while it opens": ("train", "open", 1, False, ("rank 1", OPENING, "raise resources.timeout")),
    "rank 0 while it counts": ("train", "len", 0, False, ("rank 0", OPENING)),
    "all of rank 1 while it opens": ("train", "open", 1, True, ("have not opened the data for 4 s",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STUCK)
def test_source_that_never_comes_back_ends_the_run(case: str, tmp_path: Path) -> None:
    part, where, rank, alone, words = STUCK[case]
    ensemble = faulty(tmp_path, part, "Stuck", where=where, rank=rank, alone=alone)
    ended = run(ensemble.plain("run", "--preprocessors", "2"), tmp_path, SOON)
    assert ended.code == 1, ended.output
    for word in words:
        assert word.format(rank) in ended.output, ended.output
    assert "Traceback" not in ended.output, ended.output


@pytest.mark.parametrize(("where", "words"), [("open", "the archive is no archive"), ("len", "the index is torn")])
def test_source_that_raises_at_its_opening_is_bad_input(where: str, words: str, tmp_path: Path) -> None:
    ended = run(faulty(tmp_path, "train", "Refusing", where=where).plain("run"), tmp_path, SOON)
    assert ended.code == 2, ended.output
    assert words in ended.output and "faulty_sources:Refusing" in ended.output
    assert "Traceback" not in ended.output, ended.output


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_killed_preprocessor_ends_the_run_and_the_same_command_goes_on(rank: int, tmp_path: Path) -> None:
    """It dies at the end of the first epoch, while trainers wait for its samples."""
    ensemble = faulty(tmp_path, "held_out", "Deadly", rank=rank, mended=str(tmp_path / "mended"))
    command = ensemble.plain("run", "--preprocessors", "2", "--restarts", "0", "--no-in-place")
    ended = run(command, tmp_path, SOON)
    assert ended.code == 70, ended.output
    assert "signal 9" in ended.output and "run the same command again" in ended.output, ended.output
    assert "Traceback" not in ended.output, ended.output
    (tmp_path / "mended").touch()
    ended = run(command, tmp_path)
    assert ended.code == 0, ended.output
    assert ensemble.left("run").summary["status"] == "done"


@pytest.mark.slow
def test_the_first_sample_may_be_corrupt_too(tmp_path: Path) -> None:
    """It is the one that shows what all look like, when the data is opened."""
    ensemble = torn(tmp_path, train=[0, 1, 5], on_corrupt="skip")
    ended = run(ensemble.plain("run", "--set", "defaults.stop.epochs=1"), tmp_path)
    assert ended.code == 0, ended.output
    assert ("train", 0) in told_of(ensemble.left("run"))
