"""Networks whose data come block by block have the bits of stock DDP with that sampler, wherever they are moved."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trainers
from benchmarks.virtual_hosts import virtual_hosts, why_not
from tests.live.support import blocked, stock_blocks
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import HUNGRY, Ensemble, RunFolder, mlp, write_ensemble, write_rates
from tests.live.support.processes import FLEET, run, started
from tests.warm.starting import RIG_FOLDER

WINDOW, SEED, EPOCHS, WORKERS, STOPPED = 4, 3, 6, 2, 75
PREPROCESSORS = 2
REASON = why_not()
FOLDS = ("cv-fold-0", "cv-fold-1")
JOBS = ("whole", "other", *FOLDS, "noted")
SGD = {"lr": stock_blocks.LEARNING_RATE, "momentum": stock_blocks.MOMENTUM}
MODEL = {
    "name": "trainers.zoo:MLP",
    "arguments": {"inputs": blocked.INPUTS, "widths": [stock_blocks.WIDTH], "classes": stock_blocks.CLASSES},
}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Networks on row groups of Parquet, and one on a data set that notes who reads what."""
    folder = tmp_path_factory.mktemp("blocks")
    jobs: list[dict[str, Any]] = [
        {"name": "whole"}, {"name": "other", "seed": 9}, {"name": "cv", "folds": 2, "data": "alike"},
        {"name": "noted", "data": "noted"},
    ]  # fmt: skip
    order = {"shuffle": "blocks", "window": WINDOW}
    rows = {"source": "parquet", "arguments": {"path": "rows.parquet", "inputs": "x", "targets": "y", "cache": 0.1}}
    data = {
        "rows": {"train": rows, "order": order},
        "alike": {"train": rows, "order": order},
        "noted": {"train": {"source": "blocked:Noted", "arguments": {"notes": "notes"}}, "order": order},
    }
    shared = {
        "optimizer": {"name": "SGD", "arguments": SGD},
        "virtual_workers": WORKERS, "batch_size": stock_blocks.BATCH, "model": MODEL, "stop": {"epochs": EPOCHS},
    }  # fmt: skip
    made = write_ensemble(folder, jobs, seed=SEED, data=data, defaults={"data": "rows", **shared})
    shutil.copy(blocked.__file__, folder)
    (folder / "notes").mkdir()
    inputs, targets = blocked.values()
    pq.write_table(pa.table({"x": list(inputs), "y": targets}), folder / "rows.parquet", row_group_size=blocked.BLOCK)
    write_rates(folder / "rates.json", dict.fromkeys(JOBS, HUNGRY))
    return made


@pytest.fixture(scope="module")
def trained(ensemble: Ensemble) -> RunFolder:
    """On two trainers until an epoch is over, and on one after that."""
    folder = ensemble.left("run")
    options = ("--preprocessors", "1")
    with started(ensemble.plain("run", "--trainers", "2", *options), ensemble.folder) as running:
        running.wait_for(lambda: bool(folder.events("epoch")) or running.process.poll() is not None, "an epoch")
        running.interrupt(signal.SIGINT)
        ended = running.finish()
    assert ended.code == STOPPED, ended.output
    again = run(ensemble.plain("run", "--trainers", "1", *options), ensemble.folder)
    assert again.code == 0, again.output
    return folder


def test_its_bits_are_those_of_stock_ddp_with_a_sampler_by_blocks(
    trained: RunFolder, ensemble: Ensemble, tmp_path: Path
) -> None:
    program = [sys.executable, stock_blocks.__file__]
    rest = list(map(str, (WORKERS, SEED, EPOCHS, blocked.BLOCK, WINDOW, ensemble.folder / "rows.parquet", tmp_path)))
    ranks = [subprocess.Popen([*program, str(rank), *rest]) for rank in range(WORKERS)]
    try:
        assert [process.wait(120) for process in ranks] == [0] * WORKERS
    finally:
        for process in ranks:
            process.kill()
    checkpoint = trainers.read(trained.summary["jobs"]["whole"]["checkpoint"])
    assert checkpoint.epoch == EPOCHS
    for rank in range(WORKERS):
        with np.load(tmp_path / f"rank-{rank}.npz") as wanted:
            assert set(wanted.files) == set(checkpoint.parameters)
            for name in wanted.files:
                assert checkpoint.parameters[name].numpy().tobytes() == wanted[name].tobytes(), name


@pytest.mark.parametrize(
    "job", [pytest.param("other", marks=pytest.mark.slow), FOLDS[0], pytest.param(FOLDS[1], marks=pytest.mark.slow)]
)
def test_a_replay_under_plain_ddp_has_them_too(trained: RunFolder, job: str) -> None:
    ended = run([*FLEET, "replay", str(trained.path), job, "--ddp"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


@pytest.mark.slow
def test_the_elastic_trainer_has_them_too(trained: RunFolder) -> None:
    ended = run([*FLEET, "replay", str(trained.path), "whole", "--trainers", "2"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


def noting(ensemble: Ensemble, folder: Path) -> list[str]:
    """The words of a run whose preprocessors note in a folder what they read."""
    spec = ensemble.folder / f"{folder.name}.yaml"
    spec.write_text(ensemble.spec.read_text().replace("notes: notes", f"notes: {folder}"))
    return [*FLEET, "run", str(spec), "--out", str(folder / "run")]


def assert_blocks_have_one_reader(folder: Path, preprocessors: int) -> None:
    lines = [file.read_text().split() for file in folder.iterdir() if file.is_file()]
    last = blocked.SAMPLES * EPOCHS // 2 // preprocessors  # before, all read alike, to see how fast they are
    blocks = [{int(line) // blocked.BLOCK for line in read[-last:]} for read in lines if len(read) > last]
    assert len(blocks) == preprocessors and sum(map(len, blocks)) == len(set.union(*blocks))
    assert len(set.union(*blocks)) == -(-blocked.SAMPLES // blocked.BLOCK)


def test_a_run_with_other_preprocessors_and_trainers_has_the_same_bits_and_each_block_is_read_by_one(
    tmp_path: Path, ensemble: Ensemble, trained: RunFolder
) -> None:
    ended = run(
        [*noting(ensemble, tmp_path), "--trainers", "2", "--preprocessors", str(PREPROCESSORS)], ensemble.folder
    )
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(RunFolder(tmp_path / "run"), JOBS), final_states(trained, JOBS))
    assert_blocks_have_one_reader(tmp_path, PREPROCESSORS)


@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_over_three_hosts_it_has_them_and_each_block_is_read_on_one(
    tmp_path: Path, ensemble: Ensemble, trained: RunFolder
) -> None:
    with virtual_hosts(3) as cluster:
        words = [*noting(ensemble, tmp_path), "--trainers", "3", "--preprocessors", "3"]
        ended = run([*cluster.mpiexec(2), *words], ensemble.folder)
    assert ended.code == 0, ended.output
    folder = RunFolder(tmp_path / "run")
    ranks = folder.events("cluster")[0]["ranks"]
    assert {rank["host"] for rank in ranks if "preprocessor" in rank["role"]} == {"h1", "h2", "h3"}
    assert_same_bits(final_states(folder, JOBS), final_states(trained, JOBS))
    assert_blocks_have_one_reader(tmp_path, 3)


def test_another_order_is_another_spec(ensemble: Ensemble, trained: RunFolder) -> None:
    for change in ("data.rows.order=samples", "data.rows.order.window=5"):
        ended = run(ensemble.plain("run", "--set", change), ensemble.folder)
        assert ended.code == 2 and "another spec" in ended.output and "order" in ended.output, ended.output


def test_a_plan_says_how_samples_are_shuffled(ensemble: Ensemble) -> None:
    ended = run([*FLEET, "plan", str(ensemble.spec), "--json", "--preprocessors", "2"], ensemble.folder)
    assert ended.code == 0, ended.output
    told = json.loads(ended.output)
    assert len(told["orders"]) == 3 and "11 blocks" in told["orders"][0] and not told["problems"]


@pytest.mark.skipif(RIG_FOLDER in os.environ, reason="nothing trains here")
def test_a_plan_says_where_blocks_are_read_again(ensemble: Ensemble) -> None:
    small = ["--set", "data.rows.train.arguments.cache=0.00001", "--set", "data.alike.order.window=2"]
    ended = run([*FLEET, "plan", str(ensemble.spec), "--preprocessors", "3", *small], ensemble.folder)
    text = " ".join(ended.output.split())
    assert ended.code == 0 and "give the source cache: 1 (MiB)" in text, ended.output
    assert "2 blocks are mixed at a time, and there are 3 preprocessors" in text, ended.output


def test_orders_that_cannot_be_are_told_all_at_once(tmp_path: Path) -> None:
    source = {"source": "parts:Pictures", "arguments": {"train": True}}
    orders: dict[str, Any] = {"a": {"shuffle": "block"}, "b": {"window": 4}, "c": {"shuffle": "blocks", "window": 0}}
    data = {name: {"train": source, "order": order} for name, order in orders.items()}
    made = write_ensemble(tmp_path, [mlp(name, data=name) for name in data], data=data)
    ended = run([*FLEET, "plan", str(made.spec)], tmp_path)
    text = " ".join(ended.output.split())
    assert ended.code == 2 and "Traceback" not in text, ended.output
    for part in ("data.a.order.shuffle", "'blocks'", "window is for shuffle: blocks", "data.c.order.window"):
        assert part in text, ended.output


def test_data_in_no_blocks_are_refused_with_the_mend(tmp_path: Path) -> None:
    source = {"source": "parts:Pictures", "arguments": {"train": True}}
    made = write_ensemble(tmp_path, [mlp()], data={"pictures": {"train": source, "order": "blocks"}})
    ended = run([*FLEET, "plan", str(made.spec)], tmp_path)
    assert ended.code == 2 and "such as block: 256" in " ".join(ended.output.split()), ended.output
    ended = run([*FLEET, "plan", str(made.spec), "--set", "data.pictures.order={shuffle: blocks, block: 10}"], tmp_path)
    assert ended.code == 0 and "8 blocks" in ended.output, ended.output
