"""Specs, shapes of clusters, traces and tables that others hand on: no number in them takes the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.papers.sia_machine import read_sia_rates
from fleet.commands.arguments import cluster_shape
from fleet.simulator.comparing.settings import read_cluster
from fleet.simulator.comparing.workload import Workload, synthetic_of
from fleet.simulator.traces import TraceError, read_trace
from fleet.spec import SpecError, load, loads
from preprocess.files.memory import READ_MEMORY

SPEC = """
name: s
data: {d: {train: {source: "points:Points"}}}
jobs:
  - {name: a, data: d, model: {name: "torch.nn:Linear"}, optimizer: {name: SGD}, stop: {epochs: 1}}
resources: {device: cpu}
"""


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


LAID: list[Callable[[Path], None]] = [pipe, device, sparse]


@pytest.mark.parametrize("lay", LAID)
def test_a_spec_that_is_no_file_is_named(tmp_path: Path, lay: Callable[[Path], None]) -> None:
    lay(tmp_path / "s.yaml")
    with pytest.raises(SpecError, match="not a regular file|1,099,511,627,776 bytes") as caught:
        load(tmp_path / "s.yaml")
    assert "s.yaml" in str(caught.value)


@pytest.mark.parametrize("key", ["trainers", "preprocessors", "preparing_trainers", "members_per_device"])
def test_a_spec_names_no_more_ranks_than_machines_have(key: str) -> None:
    with pytest.raises(SpecError, match="65536 or less"):
        loads(SPEC, [f"resources.{key}=1000000000"])


@pytest.mark.parametrize("shape", ["300000000x1", "1x300000000", "9x99999999999999999999", "65537"])
def test_a_cluster_to_plan_for_has_a_bound(shape: str) -> None:
    with pytest.raises(ValueError, match="more than 65,536 devices"):
        cluster_shape(shape)


@pytest.mark.parametrize("shape", ["x", "3x", "0x4", "-1x-4", "1,,2", ""])
def test_a_shape_that_is_none_is_told(shape: str) -> None:
    with pytest.raises(ValueError, match="nodes x devices of each"):
        cluster_shape(shape)


def test_a_cluster_to_simulate_has_a_bound() -> None:
    for shape in ("1000001x1", "1x9999999999", "500000x2,1x1"):
        with pytest.raises(ValueError, match="at most 1,000,000"):
            read_cluster(shape)


@pytest.mark.parametrize(
    "text, told",
    [
        ("jobs=1000000000,gap=1", "between 1 and 2,000,000"),
        ("jobs=1" + "0" * 400 + ",gap=1", "too many digits"),
        ("jobs=10,gap=1,sizes={1000000000000000000000: 1}", "1,000,000 at most"),
    ],
)
def test_what_is_drawn_has_a_bound(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        synthetic_of(text)


@pytest.mark.parametrize("lay", LAID)
@pytest.mark.parametrize("name", ["jobs.csv", "log.json", "journal.jsonl"])
def test_a_trace_that_is_no_file_is_named(
    tmp_path: Path, name: str, lay: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(READ_MEMORY, raising=False)
    lay(tmp_path / name)
    with pytest.raises(TraceError, match="not a regular file|of memory|there is no") as caught:
        read_trace(tmp_path / name)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["spec.json", "run.json", "journal.jsonl"])
def test_a_run_to_simulate_with_a_pipe_in_it_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(TraceError):
        Workload(run=tmp_path).load(0)


def test_constants_of_rates_that_are_no_file_do_not_hang(tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    os.mkfifo(tmp_path / "bert" / "placements-a100.csv")
    with pytest.raises(TraceError):
        read_sia_rates(tmp_path)


def test_a_header_of_very_many_columns_is_refused(tmp_path: Path) -> None:
    """Each short row would be filled up to its width: 50 kB became gigabytes."""
    table = tmp_path / "jobs.csv"
    table.write_text(",".join(map(str, range(8_000))) + "\n" + "1\n" * 20_000)
    with pytest.raises(TraceError, match="8,000 columns; a table has 1,000 at most"):
        read_trace(table)
