"""What limiting CPU kernels to an instruction set costs (D2), and whether it gives the same bits on older processors.

Three processes live through the whole measurement, one without limits and one for each instruction set; they train the
same network in turn, so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bars import add_median
from benchmarks.timed_networks import BATCH, NETWORKS
from trainers import Group, Trainer
from trainers.repeatable.instruction_sets import INSTRUCTION_SETS, environment, lacking

__all__ = ["OLDER_PROCESSOR", "measure", "unlimited"]

REPETITIONS = 7
WARM_UP, TIMED = 2, 4  # steps
AVX2_BAR = 1.5
SECONDS = 120.0

OLDER_PROCESSOR: Mapping[str, Mapping[str, str]] = {
    "avx2": {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "sse4": {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-AVX512F,-BMI1,-BMI2,-LZCNT",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
}
"""What makes C's mathematics and MKL believe in a processor that has no more than the instruction set. ATen and oneDNN
have no other switch than their pins."""

Figures = dict[str, Any]


def measure(repetitions: int = 0) -> Figures:
    """Return bars and a table; repetitions are interleaved."""
    repetitions = repetitions or REPETITIONS
    seconds: dict[str, dict[str, list[float]]] = {network: {} for network in NETWORKS}
    with _processes({"": {}, **{name: environment(name) for name in INSTRUCTION_SETS}}) as running:
        for _ in range(repetitions):
            for network in NETWORKS:
                for name, process in running.items():
                    seconds[network].setdefault(name, []).append(process.train(network)["seconds"])
        digests = {name: {n: process.train(n)["digest"] for n in NETWORKS} for name, process in running.items()}
    result: Figures = {"bars": [], "tables": [_table(seconds)]}
    _speed_bar(seconds, result)
    for name in INSTRUCTION_SETS:
        _bits_bar(name, digests[name], result)
    result["bits_without_pins"] = _without_pins(digests[""])
    return result


def unlimited() -> dict[str, str]:
    """This process's environment without the pins of any instruction set."""
    pins = {variable for each in INSTRUCTION_SETS.values() for variable in each.pins}
    return {name: value for name, value in os.environ.items() if name not in pins}


def _ratios(times: Mapping[str, list[float]], name: str) -> list[float]:
    return [limited / native for limited, native in zip(times[name], times[""])]


def _speed_bar(seconds: Mapping[str, Mapping[str, list[float]]], result: Figures) -> None:
    worst = max(seconds, key=lambda network: statistics.median(_ratios(seconds[network], "avx2")))
    ratios = _ratios(seconds[worst], "avx2")
    ok = statistics.median(ratios) <= AVX2_BAR
    add_median(
        result, f"D2, AVX2: a step's time, of one without pins; the worst network: {worst}", ratios, "<= 1.5", ok
    )


def _bits_bar(name: str, wanted: Mapping[str, str], result: Figures) -> None:
    """The same networks in a process that sees an older processor."""
    with _processes({name: {**environment(name), **OLDER_PROCESSOR[name]}}) as running:
        equal = [float(running[name].train(network)["digest"] == wanted[network]) for network in NETWORKS]
    bar = f"D2, {name}: networks of {len(NETWORKS)} with the same bits on an older processor"
    add_median(result, bar, [sum(equal)], f"{len(NETWORKS)}", all(equal))


def _without_pins(native: Mapping[str, str]) -> dict[str, list[str]]:
    """The networks whose bits an older processor changes if nothing is pinned, by what the processor has."""
    changed = {}
    for name, each in INSTRUCTION_SETS.items():
        limits = {variable: value for variable, value in each.pins.items() if variable != "MKL_CBWR"}
        with _processes({name: {**limits, **OLDER_PROCESSOR[name]}}) as running:
            changed[name] = [n for n in NETWORKS if running[name].train(n)["digest"] != native[n]]
    return changed


def _table(seconds: Mapping[str, Mapping[str, list[float]]]) -> Figures:
    rows = []
    for network, times in seconds.items():
        row: list[Any] = [network, 1e3 * statistics.median(times[""])]
        for name in INSTRUCTION_SETS:
            ratios = _ratios(times, name)
            row += [statistics.median(ratios), min(ratios), max(ratios)]
        rows.append(row)
    columns = ["network", "ms a step without pins"]
    columns += [column for name in INSTRUCTION_SETS for column in (f"{name}, times", "least", "most")]
    return {"title": f"pins of D2 on {torch.backends.cpu.get_cpu_capability()}", "columns": columns, "rows": rows}


class Process:
    """A child that trains what it is told."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**unlimited(), "OMP_NUM_THREADS": "1", **variables},
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def train(self, network: str) -> Figures:
        """Return the median seconds of a step, and a digest of the trained parameters."""
        assert self._child.stdin is not None and self._child.stdout is not None
        print(network, file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that trains {network} ended; see its messages above")
        return dict(json.loads(line))

    def end(self) -> None:
        """Close its input, which ends it."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        self._child.wait(SECONDS)


@contextmanager
def _processes(variables: Mapping[str, Mapping[str, str]]) -> Iterator[dict[str, Process]]:
    running = {name: Process(each) for name, each in variables.items()}
    try:
        yield running
    finally:
        for process in running.values():
            process.end()


class _Job:
    """A task of one virtual worker."""

    batch_size = BATCH

    def __init__(self, network: str) -> None:
        self.model = NETWORKS[network].model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def dataset(self, train: bool) -> None:
        return None

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])


def _train(network: str) -> Figures:
    limited = any(not lacking(each, os.environ) for each in INSTRUCTION_SETS.values())
    trainer = Trainer(_Job(network), 1, Group.alone(), level="D2" if limited else "D1")
    generator = torch.Generator().manual_seed(7)
    seconds = []
    for _ in range(WARM_UP + TIMED):
        batch = (NETWORKS[network].inputs(generator), torch.randint(0, 10, (BATCH,), generator=generator))
        begin = time.perf_counter()
        trainer.step([batch])
        seconds.append(time.perf_counter() - begin)
    bits = b"".join(value.detach().numpy().tobytes() for value in trainer.model.parameters())
    return {
        "seconds": statistics.median(seconds[WARM_UP:]),
        "digest": hashlib.blake2b(bits, digest_size=16).hexdigest(),
    }


def _serve() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(_train(line.strip())), flush=True)


if __name__ == "__main__":
    _serve()
