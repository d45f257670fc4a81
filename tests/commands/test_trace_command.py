"""`fleet trace-tensors`: it changes no bit, says what stock DDP says, and leads to the module that differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.commands.compare import compare
from fleet.commands.train import run_job
from fleet.commands.train_options import TrainOptions
from tests.commands.support.settings import kept_settings
from tests.live.support.processes import FLEET, run
from trainers import read
from trainers.proof.comparison import compare_checkpoints, compare_traces
from trainers.proof.tensor_trace import TensorHash, read_tensor_trace

TASKS = "tests.commands.support.small_tasks"
STEPS = 5  # beyond the end of the first epoch


def options(folder: Path, name: str, task: str = "Small", traced: bool = True) -> TrainOptions:
    trace = folder / f"{name}.jsonl" if traced else None
    return TrainOptions(f"{TASKS}:{task}", 3, STEPS, 1, folder / f"{name}.h5", trace=trace)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what one trainer, in this process, made of the job: traced, untraced, and tampered with."""
    folder = tmp_path_factory.mktemp("here")
    with kept_settings():
        assert run_job(options(folder, "traced")) == 0
        assert run_job(options(folder, "untraced", traced=False)) == 0
        assert run_job(options(folder, "tampered", "Tampered")) == 0
        assert run_job(options(folder, "untampered", "Untampered")) == 0
        yield folder


def traced(folder: Path, *more: str) -> list[TensorHash]:
    """The events of the job in processes of its own."""
    words = ["trace-tensors", f"{TASKS}:Small", "--virtual-workers", "3", "--steps", str(STEPS), "--out", "x.jsonl"]
    ended = run([*FLEET, *words, *more], folder)
    assert ended.code == 0, ended.output
    return list(read_tensor_trace(folder / "x.jsonl"))


def test_tracing_changes_no_bit(here: Path) -> None:
    result = compare_checkpoints(read(here / "traced.h5"), read(here / "untraced.h5"))
    assert result.is_equal, result.differences[0]


def test_everything_is_recorded_in_the_order_of_execution(here: Path) -> None:
    events = [event for event in read_tensor_trace(here / "traced.jsonl") if event.step == 1]
    assert [event.worker for event in events] == sorted(
        (event.worker for event in events), key=lambda worker: 3 if worker is None else worker
    )
    turn = [event for event in events if event.worker == 2]
    outputs = [event.name for event in turn if event.kind == "output"]
    assert outputs == ["0", "1", "2", "3", "4", "5", "6", "7", ""]
    inputs = [event.name for event in turn if event.kind == "grad-input"]
    assert inputs == ["7", "6", "5", "4", "3", "2", "1"]  # nobody asks for a gradient of the samples
    parameters = {event.name for event in turn if event.kind == "grad-param"}
    assert parameters == {f"{layer}.{what}" for layer in (0, 1, 5, 7) for what in ("weight", "bias")}
    for kind in ("reduced", "parameter"):
        assert {event.name for event in events if event.kind == kind and event.worker is None} == parameters


@pytest.mark.parametrize("more", [("--trainers", "2"), pytest.param(("--ddp",), marks=pytest.mark.slow)], ids=" ".join)
def test_two_trainers_and_stock_ddp_compute_the_same_step_by_step(
    here: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    number, difference = compare_traces(read_tensor_trace(here / "traced.jsonl"), traced(tmp_path, *more))
    assert difference is None, difference
    assert number > STEPS * 3 * 20


def test_first_module_that_differs_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        compare(here / "untampered.jsonl", here / "tampered.jsonl", False)
    assert end.value.code == 1
    assert "first difference: step 1, virtual worker 1, output of 2: " in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        compare(here / "untampered.jsonl", here / "tampered.jsonl", True)
    content = json.loads(capsys.readouterr().out)
    assert (content["left"]["step"], content["left"]["worker"], content["left"]["kind"]) == (1, 1, "output")


def test_another_job_goes_another_way(here: Path) -> None:
    events = list(read_tensor_trace(here / "traced.jsonl"))
    number, difference = compare_traces(events, events[:-1])
    assert number == len(events) - 1 and difference is not None and difference.right is None
    number, difference = compare_traces(events[1:], events)
    assert number == 0 and difference is not None and not difference.is_same_place


def test_damaged_trace_is_told(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.jsonl").write_bytes((here / "traced.jsonl").read_bytes()[:-20])
    with pytest.raises(SystemExit) as end:
        compare(here / "traced.jsonl", tmp_path / "cut.jsonl", False)
    assert end.value.code == 2
    assert "cut.jsonl: is damaged or no trace" in capsys.readouterr().err
