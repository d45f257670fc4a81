"""Pins: what a process holds still, and what a checkpoint asks of the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from trainers import ConsistencyWarning, Float32, InstructionSetError, PinsDiffer, PinsTooLate, level_of, pin, pins
from trainers.repeatable.determinism import check_members, compare_pins, float32_on
from trainers.repeatable.instruction_sets import (
    INSTRUCTION_SETS,
    environment,
    instruction_set,
    lacking,
    pinned,
    processor,
    started_with,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")
ROOT = Path(__file__).resolve().parents[2]


def test_pinning_sets_what_the_pins_say() -> None:
    pin(threads=1)
    now = pins(CPU)
    assert (now["threads"], now["deterministic"], now["cudnn_benchmark"], now["tf32"]) == (
        "1",
        "True",
        "False",
        "False",
    )
    assert torch.are_deterministic_algorithms_enabled()
    assert now["torch"] == torch.__version__ and now["device"] == "cpu" and now["processor"] == processor()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare_pins(now, now)


OF_CUDNN, OF_PROCESSORS = ("cudnn", "cudnn.conv", "cudnn.rnn"), ("", "mkldnn", "mkldnn.matmul", "mkldnn.conv")
SWITCHES = ("cuda.matmul", *OF_CUDNN, *OF_PROCESSORS)


@pytest.fixture
def precision() -> Iterator[None]:
    """Switches as they are found are as `pin` leaves them."""
    yield
    pin()


def set_switches(*names: str) -> None:
    for name in names:
        switch: Any = attrgetter(name)(torch.backends) if name else torch.backends
        switch.fp32_precision = "tf32"


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has the older switches alone")
@pytest.mark.parametrize("newer", [("",), ("cuda.matmul", "cudnn.conv"), ("mkldnn.matmul", "mkldnn"), SWITCHES])
@pytest.mark.parametrize("older", ["highest", "high"])
@pytest.mark.parametrize("matmul", ["ieee", "tf32"])
@pytest.mark.parametrize("convolutions", ["ieee", "tf32"])
def test_float32_is_multiplied_as_asked_whatever_switch_was_set(
    newer: tuple[str, ...], older: str, matmul: str, convolutions: str, precision: None
) -> None:
    torch.set_float32_matmul_precision(older)
    set_switches(*newer)
    pins(CPU)
    pin(float32=Float32(matmul, convolutions))
    told = {"cuda.matmul": matmul, **dict.fromkeys(OF_CUDNN, convolutions), **dict.fromkeys(OF_PROCESSORS, "ieee")}
    for name, value in told.items():
        assert (attrgetter(name)(torch.backends) if name else torch.backends).fp32_precision == value, name
    assert torch.get_float32_matmul_precision() == ("high" if matmul == "tf32" else "highest")
    assert torch.backends.cuda.matmul.allow_tf32 is (matmul == "tf32")
    assert torch.backends.cudnn.allow_tf32 is (convolutions == "tf32")
    assert float32_on(GPU) == Float32(matmul, convolutions)
    assert float32_on(CPU) == Float32("ieee", "ieee")


def test_what_a_network_sets_shows_in_the_pins(precision: None) -> None:
    torch.set_float32_matmul_precision("high")
    assert pins(CPU)["tf32"] == "True" and pins(CPU)["convolutions"] == "ieee"


def test_checkpoints_from_before_there_was_a_choice_are_of_whole_float32() -> None:
    old = {name: value for name, value in pins(CPU).items() if name != "convolutions"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare_pins(old, pins(CPU))
    on_gpu = {**old, "device": "GPU A"}
    with pytest.raises(PinsDiffer, match="convolutions was ieee and is tf32"):
        compare_pins(on_gpu, {**on_gpu, "convolutions": "tf32"})


def test_precision_is_no_matter_between_a_gpu_and_a_processor() -> None:
    now = pins(CPU)
    with pytest.warns(ConsistencyWarning, match="device was GPU A and is cpu"):
        compare_pins({**now, "device": "GPU A", "tf32": "True", "convolutions": "tf32"}, now)


def test_a_setting_that_differs_is_an_error_with_its_mend() -> None:
    now = pins(CPU)
    with pytest.raises(PinsDiffer, match=r"threads was 8 and is 1\. Start with the checkpoint's settings"):
        compare_pins({**now, "threads": "8"}, now)
    with pytest.raises(PinsDiffer, match="MKL_CBWR was AVX2 and is unset"):
        compare_pins({**now, "MKL_CBWR": "AVX2"}, {**now, "MKL_CBWR": ""})


def test_another_machine_is_a_warning() -> None:
    now = pins(CPU)
    with pytest.warns(ConsistencyWarning, match=r"torch was 1\.0 and is .*last bits may differ"):
        compare_pins({**now, "torch": "1.0"}, now)
    with pytest.warns(ConsistencyWarning, match="processor was an older one"):
        compare_pins({**now, "processor": "an older one"}, now)


def test_another_processor_is_covered_by_a_common_instruction_set() -> None:
    limited = {**pins(CPU), **INSTRUCTION_SETS["avx2"].pins}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare_pins({**limited, "processor": "an older one"}, limited)
        check_members([limited, {**limited, "processor": "an older one"}], [1, 2])
    with pytest.warns(ConsistencyWarning, match="device was GPU A"):
        compare_pins({**limited, "device": "GPU A"}, {**limited, "device": "GPU B"})


def test_trainers_of_different_kinds_are_named() -> None:
    now = pins(CPU)
    with pytest.warns(ConsistencyWarning, match=r"processor is .* on rank 3 and odd on rank 5.*determinism D2"):
        check_members([now, now, {**now, "processor": "odd"}], ["rank 3", "rank 4", "rank 5"])
    with pytest.raises(PinsDiffer, match="threads is 1 on 3 and 4 on 5; give all of them the same"):
        check_members([{**now, "threads": "1"}, {**now, "threads": "4"}], [3, 5])


def test_levels_are_those_of_the_paper() -> None:
    assert [(level_of(name).keeps_layout, level_of(name).mixed_kinds) for name in ("D0", "D1", "D2", "D0+D2")] == [
        (False, False),
        (True, False),
        (True, True),
        (False, True),
    ]
    assert level_of("D1+D2") is level_of("D2")


def test_unknown_levels_are_named() -> None:
    with pytest.raises(ValueError, match="'D9' is unknown; choose one of D0, D1, D2"):
        pin(level="D9")


def test_variables_that_were_set_too_late_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pinned(started_with()) is None, "run these tests without the pins of an instruction set"
    with pytest.raises(PinsTooLate, match="the variables are not set; start it with `env ATEN_CPU_CAPABILITY=avx2 "):
        pin(level="D2")
    for name, value in INSTRUCTION_SETS["sse4"].pins.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PinsTooLate, match="the variables for sse4 were set after it had started"):
        pin(level="D2")


def test_instruction_sets_that_cannot_be_had_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InstructionSetError, match="'avx512' is unknown; choose one of avx2, sse4"):
        instruction_set("avx512")
    with pytest.raises(InstructionSetError, match="MKL_CBWR is AVX512, and the instruction set avx2 needs AVX2; unset"):
        environment("avx2", inherited={"MKL_CBWR": "AVX512"})
    monkeypatch.setattr(
        "trainers.repeatable.instruction_sets._cpu_info", lambda: {"flags": "sse4_1 fpu", "model name": "Old"}
    )
    with pytest.raises(InstructionSetError, match=r"this processor \(.*Old\) has no avx2; choose .*sse4"):
        instruction_set("avx2")
    assert instruction_set("sse4").name == "sse4"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(InstructionSetError, match="this machine is aarch64; choose D1"):
        instruction_set("sse4")


def test_an_environment_has_the_pins_and_the_number_of_threads() -> None:
    for name, each in INSTRUCTION_SETS.items():
        made = environment(name, 3)
        assert not lacking(each, made) and pinned(made) is each
        assert (made["OMP_NUM_THREADS"], made["CUBLAS_WORKSPACE_CONFIG"]) == ("3", ":4096:8")


RESTARTS = """
import os, sys
from trainers.repeatable.instruction_sets import pinned, restart, started_with
if {started}: sys.modules["mpi4py.MPI"] = sys
before = os.environ.get("ROUND", "0")
os.environ["ROUND"] = str(int(before) + 1)
restart("sse4", 2)
print(before, os.getpid(), pinned(started_with()).name, os.environ["OMP_NUM_THREADS"], sys.argv[1:])
"""


def restarted(started: bool = False) -> tuple[int, subprocess.CompletedProcess[str]]:
    clean = {key: value for key, value in os.environ.items() if key not in INSTRUCTION_SETS["sse4"].pins}
    process = subprocess.Popen(
        [sys.executable, "-c", RESTARTS.format(started=started), "a b", "c"],
        env={**clean, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, error = process.communicate(timeout=60)
    return process.pid, subprocess.CompletedProcess([], process.returncode, out, error)


def test_a_program_begins_again_once_in_the_same_process() -> None:
    pid, done = restarted()
    assert done.stdout.strip() == f"1 {pid} sse4 2 ['a b', 'c']", done.stderr


def test_a_program_that_has_started_mpi_does_not_begin_again() -> None:
    _, done = restarted(started=True)
    assert done.returncode == 1 and "PinsTooLate: MPI has started" in done.stderr
