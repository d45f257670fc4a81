"""When an allocation ends, as four schedulers say it; and what a run does about it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from fleet.cluster.batch_systems import Ask, BatchAllocation, BatchSystem, allocated_nodes, find_allocation
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState
from fleet.journal.journal import Journal
from fleet.machine.launch.launched import StopFlag
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.session.opened import Walltime
from tests.journals import as_event, read_lines

NOW = 1_700_000_000.0
BEGUN = datetime.fromtimestamp(NOW - 600).strftime("%a %b %d %H:%M:%S %Y")
QSTAT = f"""Job Id: 7.pbs
    Job_Name = x
    resources_used.walltime = 00:10:00
    Resource_List.select = 2:ncpus=4
    Resource_List.walltime = 00:30:00
    stime = {BEGUN}
    Variable_List = PBS_O_HOME=/home/x,A="{{",B=C:\\new,
\tPS1=\\[x
"""
SAID: dict[str, tuple[dict[str, str], str, float | None]] = {
    "Slurm, variable": ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(NOW) + 90)}, "", 90.0),
    "Slurm, hours": ({"SLURM_JOB_ID": "7"}, "1:02:03\n", 3723.0),
    "Slurm, days": ({"SLURM_JOB_ID": "7"}, "2-00:00:10\n", 172810.0),
    "Slurm, minutes": ({"SLURM_JOB_ID": "7"}, "4:05\n", 245.0),
    "Slurm, no end": ({"SLURM_JOB_ID": "7"}, "UNLIMITED\n", None),
    "LSF": ({"LSB_JOBID": "7"}, "0:59 L\n", 3540.0),
    "PBS": ({"PBS_JOBID": "7.pbs"}, QSTAT, 1200.0),
    "Flux": ({"FLUX_JOB_ID": "f7"}, "3599.5\n", 3599.5),
}


@pytest.mark.parametrize("case", SAID)
def test_schedulers_say_when_it_ends(case: str) -> None:
    environment, said, left = SAID[case]
    found = find_allocation(environment, lambda command: said, lambda: NOW)
    assert found is not None and found.problem == "" and case.startswith(found.scheduler)
    assert (None if found.end is None else found.end - NOW) == pytest.approx(left) if left else found.end is None


@pytest.mark.parametrize("said", ["", "soon", "INVALID\n", "{}"])
@pytest.mark.parametrize("case", ["Slurm, hours", "LSF", "PBS", "Flux"])
def test_what_is_not_understood_is_no_end(case: str, said: str) -> None:
    found = find_allocation(SAID[case][0], lambda command: said, lambda: NOW)
    assert found is not None and found.end is None and found.problem


def test_a_program_that_is_not_there_is_no_end() -> None:
    found = find_allocation({"LSB_JOBID": "7", "PATH": ""})
    assert found is not None and found.end is None and "bjobs" in found.problem

    def fails(command: Sequence[str]) -> str:
        raise subprocess.CalledProcessError(1, list(command))

    found = find_allocation({"PBS_JOBID": "7"}, fails)
    assert found is not None and found.end is None and "qstat" in found.problem


def test_nothing_is_found_outside_of_all() -> None:
    assert find_allocation({}) is None


class Grid(BatchSystem):
    """A fifth one."""

    title, job_variable, program, job, template = "Grid", "GRID_JOB", "gsub", '"$GRID_JOB"', "slurm.sh.j2"

    def nodes(self, environment: Mapping[str, str]) -> tuple[int | None, int | None]:
        return 3, None

    def end_time(self, environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
        return now + float(ask(["left", environment["GRID_JOB"]]))


def test_a_batch_system_that_the_script_names_is_asked() -> None:
    environment = {"FLEET_BATCH_SYSTEM": f"{__name__}:Grid", "GRID_JOB": "g1", "SLURM_JOB_ID": "7"}
    found = find_allocation(environment, lambda command: "50" if command == ["left", "g1"] else "", lambda: NOW)
    assert found == BatchAllocation("Grid", "g1", NOW + 50)
    assert allocated_nodes({**environment, "SLURM_GPUS_ON_NODE": "4"}) == (3, 4)
    found = find_allocation({**environment, "FLEET_BATCH_SYSTEM": "nowhere:Grid"}, lambda command: "4:05", lambda: NOW)
    assert found == BatchAllocation("Slurm", "7", NOW + 245)


def test_batch_systems_can_be_imported_from_both_rooms() -> None:
    import fleet.machine

    assert fleet.machine.BatchSystem is BatchSystem


@pytest.fixture
def ledger() -> LiveState:
    jobs = [JobRecord.of(JobState(name, RateCurve({1: 10.0}, per_node=2), 2, batch=40), "s") for name in ("a", "b")]
    ledger = LiveState(Cluster((2,)), jobs, seed=0)
    ledger.planned({"a": (0,), "b": (1,)}, 0.0)
    for place, job in enumerate(jobs):
        ledger.started(job.name, (place,), 0.0)
    return ledger


def walltime(folder: Path, ledger: LiveState, left: float, variables: Mapping[str, str] | None = None) -> Walltime:
    end = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(NOW + left))}
    return Walltime(
        StopFlag(), find_allocation(variables or end), 5.0, ledger, Journal(folder / "journal.jsonl"), lambda: NOW
    )


def test_a_run_stops_for_a_step_and_all_checkpoints_and_the_margin(ledger: LiveState, tmp_path: Path) -> None:
    for seconds in (3.0, 2.0):
        ledger.saved("a", "a.h5", seconds)
    assert ledger.seconds_to_stop() == pytest.approx(4.0 + 3.0 + 3.0)  # b is thought to take as long as the longest
    assert not walltime(tmp_path, ledger, 16.0)()
    stop = walltime(tmp_path, ledger, 15.0)
    assert stop() and stop.stop.raised and stop()
    (warning,) = [event for event in read_lines(tmp_path / "journal.jsonl") if event["event"] == "warning"]
    assert "ends in 15 s" in warning["text"]


def test_what_a_job_does_not_hear_in_counts_as_it_was_in_its_last_epoch(ledger: LiveState) -> None:
    """An evaluation, say: it is longer than any step."""
    for longest in (90.0, 30.0):
        ledger.take(as_event({"event": "epoch", "t": 1.0, "job": "a", "epoch": 1, "metrics": {}, "deaf": longest}))
        assert ledger.seconds_to_stop() == pytest.approx(longest)
    ledger.take(as_event({"event": "epoch", "t": 2.0, "job": "b", "epoch": 1, "metrics": {}, "deaf": 40.0}))
    assert ledger.seconds_to_stop() == pytest.approx(40.0)


@pytest.mark.parametrize(("left", "stops", "warned"), [(60.0, 9, False), (12.0, 6, True)])
def test_at_least_half_of_what_is_left_is_for_training(
    left: float, stops: float, warned: bool, ledger: LiveState, tmp_path: Path
) -> None:
    """A run that began too late to be in time would end, be submitted again, and begin too late again."""
    stop = walltime(tmp_path, ledger, left)
    stop.announce()
    assert stop.needed == stops
    told = [event["text"] for event in read_lines(tmp_path / "journal.jsonl") if event["event"] == "warning"]
    assert bool(told) == warned and all("checkpoints.margin (now 5 s)" in text for text in told)


def test_a_run_without_an_end_is_stopped_by_signals_alone(ledger: LiveState, tmp_path: Path) -> None:
    stop = walltime(tmp_path, ledger, 0.0, {"NO": "SCHEDULER"})
    stop.announce()
    assert not stop()
    stop.stop.raised = True
    assert stop()
    assert list(read_lines(tmp_path / "journal.jsonl")) == []


def test_no_measurement_is_begun_that_would_end_too_late(tmp_path: Path) -> None:
    nobody_trains = LiveState(Cluster((2,)), [], seed=0)
    for left, late in ((14.0, False), (13.0, True)):
        assert walltime(tmp_path, nobody_trains, left)(8.0) is late  # 5 s of margin
