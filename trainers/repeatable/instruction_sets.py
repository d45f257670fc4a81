"""Which instructions a process's CPU arithmetic may use, so that different processors give the same bits (D2).

Kernels for wider vectors add in another order. The libraries under torch choose theirs by the processor, and each reads
one environment variable when it starts: so a process has to be started with them. This module imports no torch.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


class InstructionSetError(ValueError):
    """An instruction set cannot be pinned here: its name, the rule and the mend."""


class PinsTooLate(RuntimeError):
    """This process was started without the variables that its level of determinism needs."""


@dataclass(frozen=True)
class InstructionSet:
    """An instruction set that kernels can be limited to.

    name: what people call it. flag: the processor's name for what it needs at least. pins: the variables that limit
    ATen, oneDNN and MKL to it, as their manuals name them.
    """

    name: str
    flag: str
    pins: Mapping[str, str]


INSTRUCTION_SETS: Mapping[str, InstructionSet] = {
    "avx2": InstructionSet(
        "avx2", "avx2", {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"}
    ),
    "sse4": InstructionSet(
        "sse4", "sse4_1", {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
    ),
}
"""By name, the fastest first. avx2 is the default; sse4 is for machines among which some have no AVX2."""

_CPU_INFO = Path("/proc/cpuinfo")
_STARTED_WITH = Path("/proc/self/environ")


def instruction_set(name: str) -> InstructionSet:
    """Return the instruction set of this name. InstructionSetError if there is none, or this processor lacks it."""
    if name not in INSTRUCTION_SETS:
        raise InstructionSetError(f"instruction set {name!r} is unknown; choose one of {', '.join(INSTRUCTION_SETS)}")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise InstructionSetError(
            f"D2 limits CPU kernels to an x86-64 instruction set, and this machine is {platform.machine()}; choose D1, "
            "which holds on machines of one kind"
        )
    found = INSTRUCTION_SETS[name]
    flags = _cpu_info().get("flags", found.flag).split()
    if found.flag not in flags:
        raise InstructionSetError(
            f"this processor ({processor()}) has no {name}; choose the instruction set sse4 for the whole job"
        )
    return found


def environment(name: str, threads: int = 1, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables with which to start a process that keeps to an instruction set and a number of threads.

    inherited: the environment to which they will be added. InstructionSetError as `instruction_set`, and if one of them
    was set to something else on purpose.
    """
    wanted = instruction_set(name)
    for variable, value in lacking(wanted, inherited or {}).items():
        if inherited and inherited.get(variable):
            raise InstructionSetError(
                f"{variable} is {inherited[variable]}, and the instruction set {name} needs {value}; unset {variable}, "
                "or choose the instruction set that it belongs to"
            )
    return {
        **wanted.pins,
        "OMP_NUM_THREADS": str(threads),
        "MKL_DYNAMIC": "FALSE",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }


def started_with() -> Mapping[str, str]:
    """Return the environment with which this process was started, without later changes.

    Where the system does not tell it, the environment as it is now.
    """
    try:
        entries = _STARTED_WITH.read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    return dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)  # type: ignore[misc]


def lacking(wanted: InstructionSet, start: Mapping[str, str]) -> dict[str, str]:
    """Return the pins of `wanted` that a process started with the environment `start` does not have."""
    return {name: value for name, value in wanted.pins.items() if start.get(name, "").lower() != value.lower()}


def pinned(start: Mapping[str, str]) -> InstructionSet | None:
    """Return the instruction set to which a process started with the environment `start` keeps, None if to none."""
    return next((each for each in INSTRUCTION_SETS.values() if not lacking(each, start)), None)


def restart(name: str, threads: int = 1) -> None:
    """Start this process's program anew with the pins of an instruction set; return if it has them already.

    For ranks that a launcher started: the process keeps its number, its place in the job and its open files, so it must
    not have started MPI, threads or children. InstructionSetError as `environment`; PinsTooLate if MPI has started.
    """
    wanted, start = instruction_set(name), started_with()
    if not lacking(wanted, start):
        return
    variables = environment(name, threads, start)
    if "mpi4py.MPI" in sys.modules:
        raise PinsTooLate(f"MPI has started, so this process cannot begin again; {mend(wanted)}")
    _begin_again({**os.environ, **variables})


def mend(wanted: InstructionSet) -> str:
    """Return what a person can do about a process that was started without the pins of `wanted`."""
    words = " ".join(f"{name}={value}" for name, value in wanted.pins.items())
    return f"start it with `env {words} OMP_NUM_THREADS=1 ...`: torch's libraries read these when they are loaded"


def processor() -> str:
    """Return what kind of CPU this is: maker, family, model and name, as the system tells them."""
    info = _cpu_info()
    numbers = "/".join(info.get(key, "?") for key in ("cpu family", "model"))
    return f"{info.get('vendor_id', platform.machine())} {numbers} {info.get('model name', '')}".strip()


def _cpu_info() -> dict[str, str]:
    """Return the first processor's entries; none where the system has no such file."""
    try:
        first = _CPU_INFO.read_text().split("\n\n", 1)[0]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _begin_again(variables: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(variables))
