"""What the levels promise and what they do not: D0 after a restart, D1 on other instruction sets, D2 on all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from tests.trainers.programs.few_steps import Job, digest
from tests.warm.starting import python_path
from trainers import Checkpoint, Group, Trainer
from trainers.repeatable.instruction_sets import INSTRUCTION_SETS, environment

PROGRAM = Path(__file__).parent / "programs" / "few_steps.py"
NETWORKS = ("mlp", "cnn", "transformer")
HIDDEN = {"avx2": "AVX512F,AVX512VL,AVX512BW,AVX512CD,AVX512DQ", "sse4": "AVX,AVX2,FMA,AVX512F,BMI1,BMI2,LZCNT"}
"""What a processor of this kind lacks, by glibc's names."""
LIMITED = {"avx2": "AVX2", "sse4": "SSE4_2"}
"""MKL's name for the widest instructions of such a processor."""


def older_processor(name: str) -> dict[str, str]:
    """Variables that make a library see an older processor: C's mathematics and MKL see it below the pins."""
    hidden = ",".join(f"-{feature}" for feature in HIDDEN[name].split(","))
    return {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={hidden}", "MKL_ENABLE_INSTRUCTIONS": LIMITED[name]}


def unpinned_older_processor(name: str) -> dict[str, str]:
    return {**older_processor(name), **{k: v for k, v in INSTRUCTION_SETS[name].pins.items() if k != "MKL_CBWR"}}


def run(level: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    pins = {name for each in INSTRUCTION_SETS.values() for name in each.pins}
    inherited = {name: value for name, value in os.environ.items() if name not in pins}
    return subprocess.run(
        [sys.executable, str(PROGRAM), level],
        env={**inherited, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1", **(variables or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


def digests(level: str, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    done = run(level, variables)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def native() -> dict[str, str]:
    """Digests by network, without pins."""
    return digests("D1")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "sse4" else name for name in INSTRUCTION_SETS]
)
def test_d2_has_the_same_bits_on_an_older_processor(name: str, native: dict[str, str]) -> None:
    pinned = digests("D2", environment(name))
    assert pinned.keys() == set(NETWORKS)
    assert digests("D2", {**environment(name), **older_processor(name)}) == pinned


@pytest.mark.slow
def test_d1_has_other_bits_on_an_older_processor(native: dict[str, str]) -> None:
    older = digests("D1", unpinned_older_processor("sse4"))
    assert all(older[network] != native[network] for network in NETWORKS)


@pytest.mark.slow
def test_d1_has_other_bits_without_avx512(native: dict[str, str]) -> None:
    capability = torch.backends.cpu.get_cpu_capability()
    if capability != "AVX512":
        pytest.skip(f"this processor has {capability} only, so nothing changes when AVX-512 is hidden")
    older = digests("D1", unpinned_older_processor("avx2"))
    assert all(older[network] != native[network] for network in NETWORKS)


def test_d2_without_pins_says_how_to_start() -> None:
    done = run("D2")
    assert done.returncode != 0
    assert "PinsTooLate: D2 needs CPU kernels limited to one instruction set" in done.stderr
    assert "start it with `env ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2" in done.stderr


# D0: the state of gradient synchronisation is lost when a job moves (EasyScale, SC'23, 5.1.1).


def trained(level: str, moves: tuple[int, ...] = (), steps: int = 6) -> bytes:
    """Train on one trainer, leaving and coming back before the steps in `moves`; return the parameters' bytes."""
    trainer = Trainer(Job("mlp"), 3, Group.alone(), level=level)
    generator = torch.Generator().manual_seed(3)
    for step in range(steps):
        if step in moves:
            saved = trainer.snapshot()
            assert isinstance(saved, Checkpoint)
            trainer = Trainer(Job("mlp"), 3, Group.alone(), level=level)
            trainer.restore(saved)
        inputs = torch.randn(3, 8, 1, 12, 12, generator=generator)
        targets = torch.randint(0, 10, (3, 8), generator=generator)
        trainer.step(list(zip(inputs, targets)))
    return b"".join(parameter.detach().numpy().tobytes() for parameter in trainer.model.parameters())


def test_d0_repeats_on_the_same_history() -> None:
    assert trained("D0", (3,)) == trained("D0", (3,))


def test_d0_and_d1_agree_while_nothing_moves() -> None:
    assert trained("D0") == trained("D1")


def test_d0_has_other_bits_after_a_move_and_d1_has_not() -> None:
    assert trained("D0", (3,)) != trained("D0")
    assert trained("D1", (3,)) == trained("D1")


def test_a_move_before_the_first_step_changes_nothing() -> None:
    assert trained("D0", (0,)) == trained("D0")


def test_the_program_sees_what_the_levels_do() -> None:
    assert digest("mlp", "D1") == digest("mlp", "D1")
