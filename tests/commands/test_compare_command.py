"""`fleet compare`: every bit counts, and what differs is told by name, index and distance."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fleet.commands.compare import compare
from trainers import Checkpoint, file_name, write
from trainers.proof.comparison import compare_checkpoints, compare_trees
from trainers.repeatable.random_state import RandomState

RANDOM = RandomState.now(torch.device("cpu")).as_tree()


def state(**changed: Any) -> Checkpoint:
    """A job of two virtual workers, some steps on its way."""
    workers = [
        {"rank": rank, "buffers": {"norm.mean": torch.full((3,), float(rank))}, "random": dict(RANDOM), "loss_sum": 0.1,
         "samples": 8}
        for rank in range(2)
    ]  # fmt: skip
    values: dict[str, Any] = {
        "job": "net", "seed": 0, "virtual_workers": 2, "batch_size": 4, "epoch": 1, "step": 2, "steps": 9,
        "parameters": {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.bias": torch.zeros(2)},
        "workers": workers,
        "optimizer": {"state": {0: {"momentum_buffer": torch.ones(2, 3)}}, "param_groups": [{"lr": 0.1}]},
        "schedule": {"last_epoch": 9, "_last_lr": [0.1]},
        "layout": {"buckets": [[0, 1]], "used": [True, True]},
        "history": [{"loss": 2.0}],
        "pins": {"threads": "1"},
    }  # fmt: skip
    return Checkpoint(**{**values, **changed})


def with_weight(change: Callable[[torch.Tensor], None]) -> Checkpoint:
    changed = state()
    change(changed.parameters["layer.weight"])
    return changed


def outcome(capsys: pytest.CaptureFixture[str], left: Path, right: Path, as_json: bool = False) -> tuple[int, str]:
    """Exit code, and all that was printed."""
    with pytest.raises(SystemExit) as end:
        compare(left, right, as_json)
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out + said.err


def test_equal_states_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.h5", "b.h5"):
        write(tmp_path / name, state())
    code, text = outcome(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
    assert code == 0 and text.startswith("equal: every bit of")


def test_first_difference_is_told_with_index_values_and_ulps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def nudge(weight: torch.Tensor) -> None:
        weight[1, 2] = np.nextafter(np.float32(5.0), np.float32(6.0), dtype=np.float32).item()

    write(tmp_path / "a.h5", state())
    write(tmp_path / "b.h5", with_weight(nudge))
    code, text = outcome(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
    assert code == 1
    assert "first difference: parameters/layer.weight[1, 2]: 5.0 and 5.0000005, 1 ULP apart" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("parameters"))
    assert row == ["parameters", "2", "1", "8", "1", "1"]
    code, text = outcome(capsys, tmp_path / "a.h5", tmp_path / "b.h5", as_json=True)
    content = json.loads(text)
    assert code == 1 and content["equal"] is False
    assert content["first"]["index"] == [1, 2] and content["first"]["ulps"] == 1


def set_minus_zero(weight: torch.Tensor) -> None:
    weight[0, 0] = -0.0


def test_sign_of_a_zero_is_a_bit() -> None:
    (difference,) = compare_checkpoints(state(), with_weight(set_minus_zero)).differences
    assert str(difference) == "parameters/layer.weight[0, 0]: 0.0 and -0.0, 0 ULPs apart"


def test_payload_of_a_nan_is_bits() -> None:
    values = [torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, 0x7FC00001)]
    assert compare_trees({"x": values[0]}, {"x": values[0].clone()}, "p").is_equal
    (difference,) = compare_trees({"x": values[0]}, {"x": values[1]}, "p").differences
    assert str(difference) == "p/x[0]: nan (0x7fc00000) and nan (0x7fc00001)"
    assert difference.ulps is None


CHANGED: dict[str, tuple[Checkpoint, str]] = {
    "a shape": (
        replace(state(), parameters={**state().parameters, "layer.bias": torch.zeros(3)}),
        "parameters/layer.bias: shape: float32 of shape (2,) and float32 of shape (3,)",
    ),
    "a type": (
        replace(state(), parameters={**state().parameters, "layer.bias": torch.zeros(2, dtype=torch.float64)}),
        "parameters/layer.bias: type: float32 of shape (2,) and float64 of shape (2,)",
    ),
    "a missing tensor": (
        replace(state(), parameters={"layer.weight": state().parameters["layer.weight"]}),
        "parameters/layer.bias: missing: float32 of shape (2,) and nothing",
    ),
    "a learning rate": (
        replace(state(), optimizer={**state().optimizer, "param_groups": [{"lr": math.nextafter(0.1, 1)}]}),
        "optimizer/param_groups/0/lr: 0.1 and 0.10000000000000002, 1 ULP apart",
    ),
    "a schedule": (replace(state(), schedule=None), "schedule/last_epoch: missing: int 9 and nothing"),
    "the steps": (replace(state(), steps=10), "progress/steps: 9 and 10"),
    "the buckets": (
        replace(state(), layout={"buckets": [[1, 0]], "used": [True, True]}),
        "layout/buckets/0/0: 0 and 1",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_every_part_counts(what: str) -> None:
    changed, text = CHANGED[what]
    result = compare_checkpoints(state(), changed)
    assert str(result.differences[0]) == text


def test_buffers_and_random_states_of_every_worker_count() -> None:
    changed = state()
    changed.workers[1]["buffers"]["norm.mean"][2] = 7.0
    changed.workers[1]["random"] = {**changed.workers[1]["random"], "torch_cpu": torch.zeros(5056, dtype=torch.uint8)}
    names = [difference.name for difference in compare_checkpoints(state(), changed).differences]
    assert names == ["buffers/worker 1/norm.mean", "random/worker 1/torch_cpu"]


def test_pins_history_and_name_are_shown_but_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.h5", state())
    write(tmp_path / "b.h5", state(job="other", pins={"threads": "2"}, history=[]))
    code, text = outcome(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
    assert code == 0
    lengths = "history: 1 of 1 values differ, as there are 1 and 0 epochs; first: epoch 1, loss: 2.0 and nothing"
    for line in ("job: net and other", "pin threads: 1 and 2", lengths):
        assert f"not compared: {line}" in text


def test_the_first_value_in_which_histories_differ_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    histories = [[{"loss": 2.0, "accuracy": float("nan")}, {"loss": loss, "accuracy": 0.5}] for loss in (1.0, 1.25)]
    for name, history in zip("ab", histories):
        write(tmp_path / f"{name}.h5", state(history=history))
    code, text = outcome(capsys, tmp_path / "a.h5", tmp_path / "b.h5")
    told = "1 of 4 values differ; first: epoch 2, loss: 1.0 and 1.25, 0.2 of the larger apart"
    assert code == 0 and f"not compared: history: {told}\n" in text
    assert "history" not in outcome(capsys, tmp_path / "a.h5", tmp_path / "a.h5")[1]


def write_run(folder: Path, **jobs: Checkpoint) -> Path:
    for job, checkpoint in jobs.items():
        for each in (replace(checkpoint, epoch=0, steps=1), checkpoint):  # an older one, which does not count
            write(folder / "checkpoints" / job / file_name(each), each)
    return folder


def test_runs_are_compared_job_by_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = write_run(tmp_path / "left", a=state(), b=state())
    assert outcome(capsys, left, write_run(tmp_path / "same", a=state(), b=state()))[0] == 0
    code, text = outcome(capsys, left, write_run(tmp_path / "right", a=state(), b=state(steps=10)))
    assert code == 1 and "first difference: b: progress/steps: 9 and 10" in text
    code, text = outcome(capsys, left, write_run(tmp_path / "fewer", a=state()))
    assert code == 1 and "job b is on one side alone" in text


def test_run_of_one_job_is_held_against_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.h5", state())
    run = write_run(tmp_path / "run", only=state())
    assert outcome(capsys, run, tmp_path / "a.h5")[0] == 0
    assert outcome(capsys, tmp_path / "a.h5", run / "checkpoints" / "only")[0] == 0
    two = write_run(tmp_path / "two", a=state(), b=state())
    code, text = outcome(capsys, two, tmp_path / "a.h5")
    assert code == 2 and "2 jobs" in text


@pytest.mark.parametrize("broken", ["missing.h5", "text.h5", "cut.h5", "empty"])
def test_what_cannot_be_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: str) -> None:
    write(tmp_path / "a.h5", state())
    (tmp_path / "text.h5").write_text("no checkpoint")
    (tmp_path / "cut.h5").write_bytes((tmp_path / "a.h5").read_bytes()[:-500])
    (tmp_path / "empty").mkdir()
    code, text = outcome(capsys, tmp_path / "a.h5", tmp_path / broken)
    assert code == 2
    assert text.startswith("fleet: ") and broken in text and "Traceback" not in text


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_ulps_count_the_numbers_between(left: float, right: float) -> None:
    def place(value: float) -> int:
        bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
        return bits if bits >= 0 else -(bits & (2**63 - 1))

    ours, theirs = ({"x": torch.tensor([value], dtype=torch.float64)} for value in (left, right))
    result = compare_trees(ours, theirs, "p")
    if struct.pack("<d", left) == struct.pack("<d", right):
        assert result.is_equal
    else:
        assert result.differences[0].ulps == abs(place(left) - place(right))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_neighbours_of_every_type_are_one_apart(dtype: torch.dtype) -> None:
    one = torch.tensor([1.0, -1.0], dtype=dtype)
    other = one * (1 + torch.finfo(dtype).eps)
    (difference,) = compare_trees({"x": one}, {"x": other}, "p").differences
    assert (difference.ulps, difference.largest_ulps, difference.differing) == (1, 1, 2)


def test_complex_numbers_and_integers_are_compared_too() -> None:
    result = compare_trees(
        {"c": torch.tensor([1 + 1j]), "i": torch.tensor([3, 4])},
        {"c": torch.tensor([1 + 2j]), "i": torch.tensor([3, 5])},
        "p",
    )
    assert [str(d) for d in result.differences] == ["p/c[0, 1]: 1.0 and 2.0, 8388608 ULPs apart", "p/i[1]: 4 and 5"]
