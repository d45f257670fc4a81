"""Groups of `fleet run` whose devices send to each other: they form, part, fail and lose ranks, with the CPU's bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.rig import Rig
from tests.device.test_runs import ON_ITS_OWN, assert_same_bits
from tests.live.support.bits import final_states
from tests.live.support.ensembles import Ensemble, cnn, faulty, mlp, write_ensemble
from tests.live.support.parts import CLASSES
from tests.live.support.processes import run, started
from tests.live.test_lost_ranks import kill_one

WIDE = {"name": "trainers.zoo:CNN", "arguments": {"widths": [1024], "classes": CLASSES}}
"""So slow on one device of any machine that more are better, by the rates that the spec gives for them."""
STEEP = {1: 1000.0, 2: 3000.0, 3: 9000.0}  # whatever training tells of one device, or of two, more are better
EPOCHS = {"short": 1, "mlp": 2, "cnn": 8}
LONG = {"mlp": 12, "cnn": 12}
ON_RIG = {"trainers": 1, "device": "auto", "ring_samples": 128, "slot_samples": 8}


def train_on_a_cpu(rig: Rig, ensemble: Ensemble, code: int = 0) -> None:
    words = ["--set", "resources.device=cpu", "--policy", "flotilla"]
    ended = run(ensemble.plain("cpu", *words), ensemble.folder, **rig.variables)
    assert ended.code == code, ended.output
    assert {event["reduce"] for event in ensemble.left("cpu").events("session")} == {"mpi"}


@pytest.fixture(scope="module")
def uneven(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Networks that end at different times, so that those that go on get the devices; a CPU has trained them."""
    jobs = [mlp("short"), mlp(), cnn(model=WIDE)]
    jobs = [{**job, "virtual_workers": 3, "stop": {"epochs": EPOCHS[job["name"]]}} for job in jobs]
    made = write_ensemble(tmp_path_factory.mktemp("uneven"), jobs, resources=ON_RIG, rates=STEEP)
    train_on_a_cpu(rig, made)
    return made


@pytest.fixture(scope="module")
def long(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Networks of many steps, which a CPU has trained."""
    jobs = [{**job, "batch_size": 1, "stop": {"epochs": LONG[job["name"]]}} for job in (mlp(), cnn())]
    made = write_ensemble(tmp_path_factory.mktemp("long"), jobs, resources=ON_RIG, rates={1: 1000.0, 2: 1900.0})
    train_on_a_cpu(rig, made)
    return made


def assert_cpu_s_bits(ensemble: Ensemble, out: str, jobs: tuple[str, ...]) -> None:
    of_cpu = final_states(ensemble.left("cpu"), jobs)
    for job, path in final_states(ensemble.left(out), jobs).items():
        assert_same_bits(path, of_cpu[job])


@pytest.mark.parametrize("schedule", ["random:1", pytest.param("both-late", marks=pytest.mark.slow)])
def test_networks_that_move_have_the_cpu_s_bits(rig: Rig, uneven: Ensemble, schedule: str) -> None:
    """In groups of one, two and mostly three, by how fast they turn out; each that forms again sets nothing up."""
    made = uneven.folder / f"made-{schedule}"
    variables = {**rig.variables, **ON_ITS_OWN, "RIG_SCHEDULE": schedule, "RIG_COMMUNICATORS": str(made)}
    ended = run(uneven.plain(schedule, "--trainers", "4"), uneven.folder, **variables)
    assert ended.code == 0, ended.output
    folder = uneven.left(schedule)
    assert folder.summary["reduce"] == "device"
    started = folder.events("started")
    assert {len(event["devices"]) for event in started} > {1} and any(event["moved"] for event in started)
    assert_cpu_s_bits(uneven, schedule, tuple(EPOCHS))
    groups = {tuple(event["devices"]) for event in started if len(event["devices"]) > 1}
    tried = ["4"] * 4  # before the run begins
    assert sorted(made.read_text().split()[1::2]) == sorted([str(len(each)) for each in groups for _ in each] + tried)


def test_a_network_that_fails_costs_its_communicator_alone(rig: Rig, tmp_path: Path) -> None:
    """One after another on both devices: what the second made anew, all others use."""
    jobs = [mlp("first"), faulty("leaking", "raise"), mlp(), cnn()]
    ensemble = write_ensemble(tmp_path, jobs, resources=ON_RIG, policy={"name": "fifo"})
    train_on_a_cpu(rig, ensemble, code=1)
    variables = {**rig.variables, **ON_ITS_OWN, "RIG_COMMUNICATORS": str(tmp_path / "made")}
    ended = run(ensemble.plain("run", "--trainers", "2"), tmp_path, **variables)
    assert ended.code == 1, ended.output
    folder = ensemble.left("run")
    (failed,) = folder.events("failed")
    assert failed["job"] == "leaking" and "the hull leaks" in failed["traceback"]
    assert {tuple(event["devices"]) for event in folder.events("started")} == {(0, 1)}
    assert_cpu_s_bits(ensemble, "run", ("first", "mlp", "cnn"))
    assert (tmp_path / "made").read_text().split()[1::2] == ["2"] * 6  # two before the run begins


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["random:1", "prompt"])
def test_the_others_go_on_when_a_trainer_of_a_group_is_lost(rig: Rig, long: Ensemble, schedule: str) -> None:
    variables = {**rig.variables, **ON_ITS_OWN, "RIG_SCHEDULE": schedule}
    folder = long.left(schedule)
    with started(long.plain(schedule, "--trainers", "3"), long.folder, **variables) as running:
        device = kill_one(running, folder)
        ended = running.finish()
    assert ended.code == 0, ended.output
    assert len(folder.events("session")) == 1, "all ranks were started again"
    (lost,) = folder.events("lost")
    assert lost["devices"] == [device]
    (held,) = [event["devices"] for event in folder.events("started") if len(event["devices"]) > 1][:1]
    assert device in held, "it was no member of a group"
    assert_cpu_s_bits(long, schedule, tuple(LONG))


@pytest.mark.parametrize(("option", "code"), [("", 0), ("device", 2)])
def test_devices_that_do_not_reach_each_other_are_found_out_first(
    rig: Rig, tmp_path: Path, option: str, code: int
) -> None:
    ensemble = write_ensemble(tmp_path, [{**mlp(), "virtual_workers": 2}], resources=ON_RIG)
    words = ["--trainers", "2", *(["--reduce", option] if option else [])]
    ended = run(ensemble.plain("run", *words), tmp_path, **{**rig.variables, **ON_ITS_OWN, "RIG_CUT": "1"})
    assert ended.code == code and "Traceback" not in ended.output, ended.output
    assert "no device of another process can be reached" in ended.output
    if code:
        assert ended.output.count("leave --reduce out, or give mpi") == 1
    else:
        assert "gradients are added on the hosts" in ended.output and ensemble.left("run").summary["reduce"] == "mpi"


def test_cpus_are_refused(rig: Rig, tmp_path: Path) -> None:
    ensemble = write_ensemble(tmp_path, [mlp()])
    ended = run(ensemble.plain("run", "--trainers", "2", "--reduce", "device"), tmp_path, **rig.variables)
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    assert ended.output.count("--reduce device adds on accelerators") == 1 and "trains on the CPU" in ended.output


@pytest.mark.slow
@pytest.mark.parametrize(("option", "code"), [("device", 2), ("", 0)])
def test_trainers_that_share_a_device_add_on_the_host(rig: Rig, tmp_path: Path, option: str, code: int) -> None:
    ensemble = write_ensemble(tmp_path, [mlp(), cnn()], resources={**ON_RIG, "members_per_device": 2})
    words = ["--trainers", "2", *(["--reduce", option] if option else [])]
    ended = run(ensemble.plain("run", *words), tmp_path, **rig.variables, **{**ON_ITS_OWN, "RIG_DEVICES": "1"})
    assert ended.code == code, ended.output
    if code:
        assert "2 trainers share rig:0" in ended.output
    else:
        assert ensemble.left("run").summary["reduce"] == "mpi"
