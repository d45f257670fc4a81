"""`fleet run` and `fleet train` on the rig, each rank forbidden every device but its own: the CPU's bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet.spec import load
from fleet.workers.datasets import facts_of, open_datasets
from fleet.workers.runtime import Runtime
from tests.device.rig import RANDOM, Rig
from tests.live.support.bits import final_states
from tests.live.support.ensembles import WELL_FED, Ensemble, cnn, counting, faulty, mlp, write_ensemble
from tests.live.support.processes import FLEET, MPIEXEC, run
from trainers import read
from trainers.state.tree import flatten

JOBS = ("mlp", "cnn", "count")
LATE = ("main-late", "side-late", *RANDOM)
SCHEDULES = ("both-late", *(pytest.param(schedule, marks=pytest.mark.slow) for schedule in LATE))
WITH_FILES = """
import fleet.machine.devices
from pathlib import Path
fleet.machine.devices.FILES = Path({files!r})
"""
ON_ITS_OWN = {"RIG_FORBID": "others", "RIG_GENERATOR": "host", "GLOO_SOCKET_IFNAME": "lo"}
WATCHED = """
import os
from tests.gpu.device_tasks import Convolutions
class Watched(Convolutions):
    def after_step(self, model):
        print([os.environ.get("TORCH_NCCL_" + name) for name in ("ASYNC_ERROR_HANDLING", "HEARTBEAT_TIMEOUT_SEC")])
"""
TOLD = """
import os, torch
from tests.gpu.device_tasks import Convolutions
class Told(Convolutions):
    scratch = ("runs",)  # else each virtual worker has its own
    def model(self):
        self.runs, model = 0, super().model()
        model.register_forward_hook(lambda *_: setattr(self, "runs", self.runs + 1))
        return model
    def after_step(self, model):
        share = torch.rig.get_per_process_memory_fraction()
        print(f"{os.getpid()} ran {self.runs} of {share:g}\\n", end="", flush=True)
        self.runs = 0
"""
TASK = ("tests.gpu.device_tasks:Convolutions", "--virtual-workers", "3", "--steps", "6")


def assert_same_bits(mine: Path, theirs: Path) -> None:
    """All arrays are equal but the generators' of devices, of which the CPU has none."""
    of_device, of_cpu = (_arrays(path) for path in (mine, theirs))
    assert of_device.keys() == of_cpu.keys()
    assert [name for name in of_cpu if of_device[name].tobytes() != of_cpu[name].tobytes()] == []


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    _, arrays = flatten(read(path).as_tree())
    return {name: array for name, array in arrays.items() if "torch_device" not in name}


@pytest.fixture(scope="module")
def ensemble(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Three networks, which a CPU has trained."""
    resources = {"trainers": 1, "device": "auto", "ring_samples": 128, "slot_samples": 8}
    made = write_ensemble(
        tmp_path_factory.mktemp("on-devices"), [mlp(), cnn(), counting()], resources=resources, rates=WELL_FED
    )
    options = ("--set", "resources.device=cpu", "--set", "resources.members_per_device=2")
    ended = run(made.plain("cpu", *options), made.folder, **rig.variables)
    assert ended.code == 0, ended.output
    assert "members_per_device is 2, and trainers on CPUs share no device: it is ignored" in ended.output
    return made


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("trainers", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_has_the_cpu_s_bits(rig: Rig, ensemble: Ensemble, schedule: str, trainers: int) -> None:
    out = f"{schedule}-{trainers}"
    variables = {**rig.variables, **ON_ITS_OWN, "RIG_SCHEDULE": schedule}
    ended = run(ensemble.plain(out, "--trainers", str(trainers)), ensemble.folder, **variables)
    assert ended.code == 0, ended.output
    on_devices = ensemble.left(out)
    (cluster,) = on_devices.events("cluster")
    names = {rank["device_name"] for rank in cluster["ranks"]} - {None}
    assert names == {f"rig:{index}" for index in range(trainers)}
    assert {rank["device_model"] for rank in cluster["ranks"]} == {None, "Rig"}
    of_cpu = final_states(ensemble.left("cpu"), JOBS)
    for job, path in final_states(on_devices, JOBS).items():
        assert_same_bits(path, of_cpu[job])
        assert _metrics(on_devices.summary, job) == _metrics(ensemble.left("cpu").summary, job)


@pytest.mark.parametrize("devices", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_trainers_that_share_devices_have_the_cpu_s_bits(rig: Rig, ensemble: Ensemble, devices: int) -> None:
    out, members = f"shared-{devices}", 4 // devices
    variables = {**rig.variables, **ON_ITS_OWN, "RIG_SCHEDULE": "both-late", "RIG_DEVICES": str(devices)}
    options = ("--set", "resources.trainers=null", "--set", f"resources.members_per_device={members}")
    ended = run(ensemble.plain(out, *options), ensemble.folder, **variables)
    assert ended.code == 0, ended.output
    on_devices = ensemble.left(out)
    (cluster,) = on_devices.events("cluster")
    names = [rank["device_name"] for rank in cluster["ranks"] if rank["device"] is not None]
    assert names == [f"rig:{index % devices}" for index in range(4)] and cluster["members_per_device"] == members
    groups = [group for each in on_devices.summary["rounds"] for group in each["allocation"].values()]
    assert max(map(len, groups)) > 1, "there is a group whose members add on their hosts"
    of_cpu = final_states(ensemble.left("cpu"), JOBS)
    for job, path in final_states(on_devices, JOBS).items():
        assert_same_bits(path, of_cpu[job])


def test_more_trainers_than_may_share_a_device_are_refused(rig: Rig, ensemble: Ensemble) -> None:
    options = ("--trainers", "3", "--set", "resources.members_per_device=2")
    ended = run(ensemble.plain("none", *options), ensemble.folder, **rig.variables, RIG_DEVICES="1")
    assert ended.code == 2
    assert "share GPU 0, and resources.members_per_device is 2; start at most 2 trainers on a node" in ended.output


def test_a_spec_s_trainers_are_no_more_than_the_gpus_here_take(rig: Rig, tmp_path: Path) -> None:
    """The module knows where to look for GPUs' files; a program that starts with each process says elsewhere."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    (tmp_path / "sitecustomize.py").write_text(WITH_FILES.format(files=str(tmp_path / "dev")))
    made = write_ensemble(tmp_path, [mlp(stop={"epochs": 1})], resources={"trainers": 2, "device": "auto"})
    path = f"{tmp_path}:{rig.variables['PYTHONPATH']}"
    ended = run(made.plain("run"), tmp_path, **{**rig.variables, "PYTHONPATH": path}, RIG_DEVICES="1")
    assert ended.code == 0, ended.output
    assert "GPUs take 1 of the spec's 2 trainers" in ended.output and "members_per_device=2" in ended.output


def test_a_plan_s_trainers_share_devices(rig: Rig, ensemble: Ensemble) -> None:
    options = ("--set", "resources.trainers=null", "--set", "resources.members_per_device=2", "--json")
    for shape, names in (((), ["rig:0", "rig:0"]), (("--cluster", "1x2"), ["rig:0", "rig:1", "rig:0", "rig:1"])):
        command = [*FLEET, "plan", str(ensemble.spec), *options, *shape]
        planned = json.loads(run(command, ensemble.folder, **rig.variables, RIG_DEVICES="1").output)
        trainers = [rank["device_name"] for rank in planned["cluster"]["ranks"] if rank["device"] is not None]
        assert trainers == names and planned["cluster"]["members_per_device"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("members, code", [(2, 0), (1, 1)])
def test_the_doctor_looks_at_who_shares_a_device(rig: Rig, tmp_path: Path, members: int, code: int) -> None:
    words = [*MPIEXEC, "-n", "3", *FLEET, "doctor", "--members-per-device", str(members)]
    ended = run(words, tmp_path, **rig.variables, RIG_DEVICES="1")
    assert ended.code == code and ("share GPU" in ended.output) is (code == 1), ended.output


def test_rates_are_those_of_members_that_all_train(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One network is measured alone first, when each of its steps runs both virtual workers in one process."""
    (tmp_path / "told.py").write_text(TOLD)
    job = {"name": "told", "task": "told:Told", "virtual_workers": 2, "stop": {"epochs": 1}}
    sections: dict[str, Any] = {"data": {}, "defaults": {}, "profile": {"batches": 6, "timed": 3}}
    resources = {"device": "auto", "members_per_device": 2}
    made = write_ensemble(tmp_path, [job], measured=False, resources=resources, **sections)
    command = [*FLEET, "profile", str(made.spec), "--out", "rates.json"]
    ended = run(command, tmp_path, **rig.variables, **ON_ITS_OWN, RIG_DEVICES="1")
    assert ended.code == 0, ended.output
    alone = {line for line in ended.output.splitlines() if line.endswith("ran 2 of 0.45")}
    assert len(alone) == 2, ended.output
    monkeypatch.syspath_prepend(tmp_path)
    spec, told = load(made.spec), json.loads((tmp_path / "rates.json").read_text())["rates"]
    known = Runtime(spec, facts_of(open_datasets(spec)))
    keys = {device: known.fingerprint("told", device) for device in ("Rig", "rig")}
    assert keys["Rig"] in told and keys["rig"] not in told, "rates are those of a model of device"


def _metrics(summary: Mapping[str, Any], job: str) -> Any:
    return summary["jobs"][job]["metrics"]


def _train(folder: Path, name: str, *options: str, **variables: str) -> Path:
    path = folder / f"{name}.h5"
    ended = run([*FLEET, "train", *TASK, "--checkpoint", str(path), *options], folder, **variables)
    assert ended.code == 0, ended.output
    return path


@pytest.mark.parametrize("trainers", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kernel_that_fails_costs_its_own_network_alone(rig: Rig, tmp_path: Path, trainers: int) -> None:
    """Its process ends, as nothing works on its device any more; with the last trainer, all start again."""
    made = write_ensemble(tmp_path, [faulty("lookup", "index"), mlp()], resources={"device": "auto"})
    command = made.plain("run", "--trainers", str(trainers))
    ended = run(command, tmp_path, **rig.variables, **ON_ITS_OWN)
    jobs = made.left("run").summary["jobs"]
    assert {job: result["status"] for job, result in jobs.items()} == {"lookup": "failed", "mlp": "done"}, ended.output
    assert ended.code == 1
    assert "a kernel failed on rig:" in jobs["lookup"]["error"] and "index out of range" in jobs["lookup"]["error"]
    assert "Traceback" in jobs["lookup"]["error"]


def test_trainers_whose_devices_differ_are_told(rig: Rig, tmp_path: Path) -> None:
    differing = ["sh", "-c", 'RIG_MULTIPROCESSORS=$((108 + OMPI_COMM_WORLD_RANK)) exec "$@"', "sh"]
    words = [*MPIEXEC, "-n", "2", *differing, *FLEET, "train", *TASK, "--checkpoint", str(tmp_path / "net.h5")]
    ended = run(words, tmp_path, **rig.variables, **ON_ITS_OWN)
    assert ended.code == 0, ended.output
    assert "multiprocessors is 108 on rank 0 and 109 on rank 1" in ended.output


def test_operators_that_gpus_refuse_are_told_before_the_first_step(rig: Rig, tmp_path: Path) -> None:
    pooled = {"name": "pooled", "model": {"name": "parts:Pooled"}}
    made = write_ensemble(tmp_path, [mlp(), pooled], resources={"device": "auto"})
    said = "job pooled uses _adaptive_avg_pool2d_backward: torch has no deterministic form of this on GPUs"
    planned = run([*FLEET, "plan", str(made.spec), "--json"], tmp_path, **rig.variables)
    (problem,) = json.loads(planned.output)["problems"]
    assert problem.startswith(said)
    for device, told in (("auto", ["pooled"]), ("cpu", [])):
        command = made.plain(device, "--trainers", "1", "--set", f"resources.device={device}")
        assert run(command, tmp_path, **rig.variables, **ON_ITS_OWN).code == 0
        warnings = [line for line in made.left(device).events("warning") if line["text"].startswith(said)]
        assert [line["job"] for line in warnings] == told


@pytest.mark.slow
@pytest.mark.parametrize("reduce", ["mpi", "torch", "device", "nccl"])
def test_one_job_has_the_cpu_s_bits(rig: Rig, tmp_path: Path, reduce: str) -> None:
    variables = {**rig.variables, **ON_ITS_OWN}
    cpu = _train(tmp_path, "cpu", "--device", "cpu", "--trainers", "1", **rig.variables)
    there = _train(tmp_path, "rig", "--trainers", "3", "--reduce", reduce, **variables)
    assert_same_bits(there, cpu)


@pytest.mark.parametrize("mask, code", [("GPU-$OMPI_COMM_WORLD_RANK", 0), ("GPU-0", 2)], ids=["one each", "the same"])
def test_a_rank_that_is_shown_one_device_trains_on_it(rig: Rig, tmp_path: Path, mask: str, code: int) -> None:
    """As srun --gpus-per-task=1 does: each rank sees one device, which has the number 0."""
    masked = ["sh", "-c", f'CUDA_VISIBLE_DEVICES={mask} RIG_DEVICES=1 exec "$@"', "sh"]
    path = tmp_path / "net.h5"
    words = [*MPIEXEC, "-n", "2", *masked, *FLEET, "train", *TASK, "--checkpoint", str(path)]
    ended = run(words, tmp_path, **rig.variables, **ON_ITS_OWN)
    assert ended.code == code, ended.output
    assert path.exists() is (code == 0)
    if code:
        assert ended.output.count("ranks 0-1") == 1 and "share GPU GPU-0" in ended.output


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({}, id="ours"),
        pytest.param({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, id="the user's", marks=pytest.mark.slow),
    ],
)
def test_torch_s_watchdog_over_nccl_comes_after_our_time_outs(rig: Rig, tmp_path: Path, own: dict[str, str]) -> None:
    (tmp_path / "watched.py").write_text(WATCHED)
    words = ["watched:Watched", *TASK[1:], "--checkpoint", "net.h5", "--trainers", "2", "--reduce", "device"]
    variables = {**rig.variables, **ON_ITS_OWN, **own}
    ended = run([*FLEET, "train", *words], tmp_path, **variables)
    assert ended.code == 0, ended.output
    assert ended.output.count(f"['{own.get('TORCH_NCCL_ASYNC_ERROR_HANDLING', '0')}', '660']") == 2 * 6
