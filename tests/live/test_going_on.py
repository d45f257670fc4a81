"""Runs that are killed, interrupted, or find a damaged checkpoint, and go on: to the bits of an undisturbed run."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

import trainers
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, pictures, write_ensemble
from tests.live.support.processes import Running, run, started

JOBS = ("mlp", "cnn")
EPOCHS = 10
STOPPED, LOST = 75, 70


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Two networks of 10 epochs of 40 steps, a fifth of a second each, so that a test can meet them inside of one."""
    jobs = [{**job, "stop": {"epochs": EPOCHS}} for job in (mlp(batch_size=1), cnn(batch_size=1))]
    data = {"pictures": pictures({"seconds": 0.003})}
    return write_ensemble(tmp_path_factory.mktemp("long"), jobs, data=data)


@pytest.fixture(scope="module")
def undisturbed(long: Ensemble) -> RunFolder:
    ended = run(long.plain("undisturbed"), long.folder)
    assert ended.code == 0, ended.output
    return long.left("undisturbed")


@pytest.fixture(scope="module")
def killed(long: Ensemble) -> RunFolder:
    """A run whose processes were all killed at once, after five epochs: its samples are held back there."""
    folder = long.left("killed")
    gate = {"GATE": str(long.folder / "never"), "GATE_AFTER": "5"}
    with started(long.plain("killed", "--trainers", "2"), long.folder, **gate) as it:
        await_epochs(it, folder, 3)
        it.kill()
    return folder


def await_epochs(running: Running, folder: RunFolder, count: int) -> None:
    """Wait until every job has finished so many epochs."""

    def passed() -> bool:
        assert running.process.poll() is None, running.output
        return all(len(folder.events("checkpoint", job)) >= count for job in JOBS)

    running.wait_for(passed, f"{count} checkpoints of each job")


def finish(long: Ensemble, folder: RunFolder, *options: str) -> str:
    """Start the run once more; it ends well. Returns what it wrote."""
    ended = run(long.plain(folder.path.name, *options), long.folder)
    assert ended.code == 0, ended.output
    assert folder.summary["status"] == "done"
    assert {record["epochs"] for record in folder.summary["jobs"].values()} == {EPOCHS}
    return ended.output


@pytest.fixture(scope="module")
def damaged(long: Ensemble, killed: RunFolder) -> tuple[RunFolder, Path]:
    """A copy of the killed run, with one flipped bit in a weight of the perceptron's newest checkpoint."""
    copy = long.left("damaged")
    shutil.copytree(killed.path, copy.path)
    newest = copy.checkpoints("mlp")[-1]
    weights = next(iter(trainers.read(newest).parameters.values())).numpy().tobytes()
    content = bytearray(newest.read_bytes())
    content[content.index(weights)] ^= 1
    newest.write_bytes(content)
    return copy, newest


def test_killed_run_goes_on_with_the_same_bits(
    long: Ensemble, killed: RunFolder, damaged: object, undisturbed: RunFolder
) -> None:
    assert killed.summary["status"] == "stopped"
    assert not killed.events("ended") and not killed.events("done")
    finish(long, killed, "--trainers", "2")
    second = killed.journal[[event["event"] for event in killed.journal].index("session", 1) :]
    assert second[0]["session"] == 1
    starts = {event["job"]: event["epoch"] for event in second if event["event"] == "started"}
    assert set(starts) == set(JOBS) and min(starts.values()) >= 3, "it began anew"
    assert_same_bits(final_states(killed, JOBS), final_states(undisturbed, JOBS))


def test_times_go_on_without_the_gap(killed: RunFolder) -> None:
    times = [event["t"] for event in killed.journal]
    assert times == sorted(times)
    rounds = killed.summary["rounds"]
    assert all(earlier["end"] <= later["start"] for earlier, later in zip(rounds, rounds[1:]))


@pytest.mark.slow
def test_damaged_checkpoint_is_passed_over(
    long: Ensemble, damaged: tuple[RunFolder, Path], undisturbed: RunFolder
) -> None:
    folder, path = damaged
    with pytest.raises(trainers.CheckpointError):
        trainers.read(path)
    output = finish(long, folder)
    warnings = [event for event in folder.events("warning", "mlp") if path.name in event["text"]]
    assert len(warnings) == 1 and "damaged" in warnings[0]["text"]
    assert path.name in output
    assert_same_bits(final_states(folder, JOBS), final_states(undisturbed, JOBS))


@pytest.mark.slow
def test_interrupt_stops_between_two_steps_and_the_same_command_goes_on(long: Ensemble, undisturbed: RunFolder) -> None:
    folder = long.left("interrupted")
    with started(long.plain("interrupted", "--trainers", "2"), long.folder) as running:
        await_epochs(running, folder, 1)
        running.interrupt(signal.SIGINT)
        ended = running.finish()
    assert ended.code == STOPPED, ended.output
    assert folder.summary["status"] == "stopped"
    assert {record["status"] for record in folder.summary["jobs"].values()} == {"pending"}
    assert folder.journal[-1]["event"] == "ended" and folder.journal[-1]["status"] == "stopped"
    assert (folder.path / "report.html").is_file()
    stops = folder.events("stopped")
    assert {event["job"] for event in stops} == set(JOBS) and {event["why"] for event in stops} == {"signal"}
    assert any(event["step"] > 0 for event in stops), "both jobs happened to be between two epochs"
    for event in stops:
        newest = trainers.read(folder.checkpoints(event["job"])[-1])
        assert (newest.epoch, newest.step) == (event["epoch"], event["step"])
    assert 0 < folder.summary["samples"]["read"] < undisturbed.summary["samples"]["read"]
    finish(long, folder, "--trainers", "2")
    assert folder.summary["samples"]["read"] == undisturbed.summary["samples"]["read"], "both sessions count"
    assert_same_bits(final_states(folder, JOBS), final_states(undisturbed, JOBS))


def test_signal_of_a_batch_system_stops_the_run_under_mpiexec(long: Ensemble) -> None:
    """SIGUSR1, which mpiexec hands on to the ranks, is what Slurm and LSF can send before the time is over."""
    folder = long.left("warned")
    with started(long.under_mpiexec(2, "warned"), long.folder) as running:
        running.wait_for(lambda: bool(folder.events("epoch")), "an epoch")
        running.interrupt(signal.SIGUSR1)
        ended = running.finish()
    assert ended.code == STOPPED, ended.output
    assert folder.summary["status"] == "stopped"


@pytest.mark.slow
def test_second_run_in_the_same_directory_is_refused(long: Ensemble) -> None:
    folder, gate = long.left("held"), long.folder / "open"
    variables = {"GATE": str(gate), "GATE_AFTER": "0"}
    with started(long.plain("held", "--set", "defaults.stop.epochs=1"), long.folder, **variables) as running:
        running.wait_for(lambda: bool(folder.events("cluster")), "the first run to begin")
        again = ("--set", "defaults.stop.epochs=1", "--set", "resources.lock_wait=1")
        ended = run(long.plain("held", *again), long.folder)
        assert ended.code == LOST, ended.output
        assert ended.output.count("waiting for its end, 1 s at most") == 1, ended.output
        assert "run the same command again" in ended.output and "Traceback" not in ended.output
        gate.touch()
        first = running.finish()
    assert first.code == 0, first.output
    assert folder.summary["status"] == "done"


def test_a_job_whose_end_was_not_written_down_is_not_trained_further(long: Ensemble, undisturbed: RunFolder) -> None:
    """Everything died between the last checkpoints and the journal's word of them."""
    copy = long.left("unsaid")
    shutil.copytree(undisturbed.path, copy.path)
    events = copy.journal
    cut = next(i for i, event in enumerate(events) if event["event"] == "checkpoint" and event["epoch"] == EPOCHS)
    lines = (copy.path / "journal.jsonl").read_text().splitlines(keepends=True)
    (copy.path / "journal.jsonl").write_text("".join(lines[:cut]))
    (copy.path / "run.json").unlink()
    finish(long, copy)
    ends = copy.events("done")
    assert {(event["job"], event["epoch"], event["why"]) for event in ends} == {(job, EPOCHS, "epochs") for job in JOBS}
    assert any(event["round"] is None for event in ends)
    assert_same_bits(final_states(copy, JOBS), final_states(undisturbed, JOBS))
