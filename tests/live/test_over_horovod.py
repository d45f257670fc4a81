"""Runs whose gradients Horovod adds: groups side by side and formed anew; weights as over MPI, within rounding."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.live.support.ensembles import WELL_FED, Ensemble, RunFolder, cnn, faulty, mlp, write_ensemble
from tests.live.support.processes import FLEET, run
from trainers import read

EPOCHS = {"short": 1, "mlp": 3, "cnn": 6}
TOLD = "not bit for bit"

needs_horovod = pytest.mark.skipif(
    find_spec("horovod") is None, reason="no Horovod here: batch_scripts/install_horovod.sh"
)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Networks that end at different times, so that those that go on get the devices."""
    jobs = [mlp(name, virtual_workers=3) for name in ("short", "mlp")] + [cnn("cnn", virtual_workers=3)]
    jobs = [{**job, "stop": {"epochs": EPOCHS[job["name"]]}} for job in jobs]
    return write_ensemble(tmp_path_factory.mktemp("uneven"), jobs, rates=WELL_FED)


@pytest.fixture(scope="module")
def moved(uneven: Ensemble) -> RunFolder:
    ended = run(uneven.plain("moved", "--trainers", "4", "--reduce", "horovod"), uneven.folder)
    assert ended.code == 0, ended.output
    assert ended.output.count(TOLD) == 1, ended.output
    return uneven.left("moved")


@needs_horovod
@pytest.mark.slow
def test_groups_train_side_by_side_and_are_formed_anew(moved: RunFolder) -> None:
    assert {job: record["epochs"] for job, record in moved.summary["jobs"].items()} == EPOCHS
    allocations = [event["allocation"] for event in moved.events("planned")]
    wide = [sum(len(devices) > 1 for devices in allocation.values()) for allocation in allocations]
    assert max(wide) >= 2, f"no two groups of several trainers at a time: {allocations}"
    widths = {len(event["devices"]) for event in moved.events("started", "cnn")}
    assert len(widths) >= 2, widths
    assert any(event["moved"] for event in moved.events("started"))


@needs_horovod
@pytest.mark.slow
def test_weights_are_those_of_a_run_over_mpi_within_rounding(uneven: Ensemble, moved: RunFolder) -> None:
    ended = run(uneven.plain("still"), uneven.folder)
    assert ended.code == 0, ended.output
    still = uneven.left("still")
    for job in EPOCHS:
        mine, theirs = (read(folder.checkpoints(job)[-1]) for folder in (moved, still))
        for name, weights in theirs.parameters.items():
            torch.testing.assert_close(mine.parameters[name], weights, rtol=1e-3, atol=1e-5)
        assert mine.history[-1]["loss"] == pytest.approx(theirs.history[-1]["loss"], rel=1e-3)
    compared = run([*FLEET, "compare", str(moved.path), str(still.path)], uneven.folder)
    assert compared.code == 1 and "cnn" in compared.output, compared.output


@needs_horovod
@pytest.mark.slow
def test_run_says_that_its_bits_are_its_own(moved: RunFolder) -> None:
    assert [event["reduce"] for event in moved.events("session")] == ["horovod"]
    assert any(TOLD in event["text"] for event in moved.events("warning"))
    assert moved.summary["reduce"] == "horovod"
    assert "gradients added by Horovod" in (moved.path / "report.html").read_text()


@needs_horovod
@pytest.mark.slow
def test_failing_network_leaves_the_others_alone(tmp_path: Path) -> None:
    jobs = [{**faulty("broken", "raise"), "virtual_workers": 2}, cnn("cnn", virtual_workers=2)]
    ensemble = write_ensemble(tmp_path, jobs)
    ended = run(ensemble.plain("out", "--trainers", "4", "--reduce", "horovod"), tmp_path)
    assert ended.code == 1, ended.output
    summary = ensemble.left("out").summary["jobs"]
    assert {name: job["status"] for name, job in summary.items()} == {"broken": "failed", "cnn": "done"}
    assert "the hull leaks" in summary["broken"]["error"]


def test_unknown_way_is_told(uneven: Ensemble) -> None:
    ended = run(uneven.plain("never", "--reduce", "horvod"), uneven.folder)
    assert ended.code == 2 and "--reduce horvod: choose one of device, mpi, horovod" in ended.output
    assert not uneven.left("never").path.exists()
