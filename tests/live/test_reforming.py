"""Networks that converge at different times: groups are formed anew, and no bit tells of it."""

from __future__ import annotations

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import WELL_FED, Ensemble, RunFolder, cnn, counting, mlp, write_ensemble
from tests.live.support.parts import HELD_OUT
from tests.live.support.processes import run

EPOCHS = {"short": 1, "mlp": 3, "cnn": 6}


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    jobs = [counting("short"), mlp("mlp", virtual_workers=3), cnn("cnn", virtual_workers=3)]
    jobs = [{**job, "stop": {"epochs": EPOCHS[job["name"]]}} for job in jobs]
    return write_ensemble(tmp_path_factory.mktemp("uneven"), jobs, rates=WELL_FED)


@pytest.fixture(scope="module")
def moved(uneven: Ensemble) -> RunFolder:
    ended = run(uneven.plain("moved", "--trainers", "3"), uneven.folder)
    assert ended.code == 0, ended.output
    return uneven.left("moved")


def test_jobs_move_between_numbers_of_devices(moved: RunFolder) -> None:
    assert len(moved.summary["rounds"]) >= 2
    assert {job: record["epochs"] for job, record in moved.summary["jobs"].items()} == EPOCHS
    widths = {job: [len(event["devices"]) for event in moved.events("started", job)] for job in EPOCHS}
    assert any(len(set(each)) >= 2 for each in widths.values()), widths
    assert moved.events("stopped"), "no job left its devices before it was done"
    assert all(event["why"] == "policy" for event in moved.events("stopped"))


def test_each_start_goes_on_where_the_job_stopped(moved: RunFolder) -> None:
    for job in EPOCHS:
        stops = [(event["epoch"], event["step"]) for event in moved.events("stopped", job)]
        starts = [(event["epoch"], event["step"]) for event in moved.events("started", job)]
        assert starts == [(0, 0), *stops]


def test_each_sample_that_a_moving_job_reads_is_counted_once(moved: RunFolder) -> None:
    padded = {"short": 80, "mlp": 81, "cnn": 81}  # two or three virtual workers share 79 pictures
    counted = moved.summary["samples"]
    assert counted["read"] == sum(epochs * (padded[job] + HELD_OUT) for job, epochs in EPOCHS.items())
    assert counted["laid"] > counted["made"] > 0, "held-out samples are kept, and those that others have yet to read"


def test_bits_are_those_of_a_run_that_never_moved(uneven: Ensemble, moved: RunFolder) -> None:
    ended = run(uneven.plain("still"), uneven.folder)
    assert ended.code == 0, ended.output
    still = uneven.left("still")
    assert {len(event["devices"]) for event in still.events("started")} == {1}
    assert_same_bits(final_states(moved, tuple(EPOCHS)), final_states(still, tuple(EPOCHS)))
