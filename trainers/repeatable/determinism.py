"""What a process must hold still for its results to repeat, set and described in one place.

The levels are EasyScale's (SC'23, 3.3). D0: the same trainers with the same history repeat. D1, the default: any number
of trainers gives the same bits, moved and restarted at will, since virtual ranks, the order of sums and the layout of
buckets are kept. D2: so do devices of different kinds, since kernels are limited to those that all of them have.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from trainers.messages.group import Group
from trainers.repeatable.instruction_sets import (
    INSTRUCTION_SETS,
    PinsTooLate,
    lacking,
    mend,
    pinned,
    processor,
    started_with,
)

_ENVIRONMENT = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "CUBLAS_WORKSPACE_CONFIG",
)


IEEE, TF32 = "ieee", "tf32"


_CHOSEN = ("threads", "deterministic", "cudnn_benchmark", "tf32", "convolutions", "agnostic_kernels", *_ENVIRONMENT)
"""Pins that a run can set; the others describe the machine and its software."""


_COVERED = ("processor", "cpu_capability")
"""What may differ between machines that are limited to the same instruction set."""


_OF_GPUS = ("tf32", "convolutions")
"""What only accelerators have a choice of."""


_BEFORE = {"convolutions": IEEE}
"""Pins that older checkpoints do not name, as they were then."""


class PinsDiffer(ValueError):
    """A checkpoint was made under settings that this process does not have, though it could."""


class ConsistencyWarning(UserWarning):
    """Results from here on may differ in their last bits from an uninterrupted run's."""


@dataclass(frozen=True)
class Level:
    """A level of determinism.

    keeps_layout: whether bits survive another number of trainers and a restart (D1): the layout of buckets is restored.
    mixed_kinds: whether bits survive another kind of device (D2): kernels are limited to hardware-agnostic ones.
    """

    name: str
    keeps_layout: bool
    mixed_kinds: bool


LEVELS: Mapping[str, Level] = {
    level.name: level
    for level in (
        Level("D0", False, False),
        Level("D1", True, False),
        Level("D2", True, True),
        Level("D0+D2", False, True),
    )
}
"""By name. D2 holds D1; D0+D2, which EasyScale (5.1.1) compares with, mixes kinds but not numbers of devices."""


def level_of(name: str) -> Level:
    """Return the level of this name; D1+D2 is another name of D2. ValueError names the choices."""
    level = LEVELS.get("D2" if name == "D1+D2" else name)
    if level is None:
        raise ValueError(f"determinism level {name!r} is unknown; choose one of {', '.join(LEVELS)}")
    return level


@dataclass(frozen=True)
class Float32:
    """In what GPUs multiply float32, "ieee" or "tf32"; a script that sets nothing has these defaults of torch.

    matmul: products of matrices. convolutions: what cuDNN computes, so recurrent layers, too.
    """

    matmul: str = IEEE
    convolutions: str = TF32


AS_TORCH = Float32()


@dataclass(frozen=True)
class Arithmetic:
    """How a job's numbers are computed: at a level of determinism, and products of float32 as is said."""

    level: str = "D1"
    float32: Float32 = AS_TORCH


def pin(
    threads: int | None = None, level: str = "D1", device: torch.device | str = "cpu", float32: Float32 = AS_TORCH
) -> Level:
    """Hold this process's arithmetic still: deterministic algorithms, no trial of kernels, fixed CPU threads.

    Call it before the first work on a GPU, as cuBLAS reads its workspace setting when it starts.
    threads: None leaves torch's number; it changes results and must be the same for a whole job.
    level: at D2 the process must have been started with the pins of an instruction set (see
    `trainers.repeatable.instruction_sets`); PinsTooLate says how if it was not. ConsistencyWarning for a GPU, where
    D2 does all that torch allows but was not tried on different kinds.
    float32: in what GPUs multiply float32; torch's own defaults, whatever the process has set, if not given.
    """
    chosen, device = level_of(level), torch.device(device)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    keep_kernels_on_the_node()
    use_deterministic(True)
    # It costs time, and nothing here reads uninitialised memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    set_float32(float32)
    _choose_gpu_kernels(agnostic=chosen.mixed_kinds and device.type != "cpu")
    if threads is not None:
        torch.set_num_threads(threads)
    if chosen.mixed_kinds:
        _check_instruction_set()
        _warn_of_gpu(device)
    return chosen


def use_deterministic(on: bool) -> None:
    """Do what `torch.use_deterministic_algorithms` does, but do not load torch's compiler for it.

    A variable of the environment tells the compiler, should something load it later.
    """
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(on)
    else:
        os.environ["TORCHINDUCTOR_DETERMINISTIC"] = str(int(on))
        torch.set_deterministic_debug_mode("error" if on else "default")


def _choose_gpu_kernels(agnostic: bool) -> None:
    """Leave out, or take back in, kernels that are written for one kind of GPU: cuDNN's, and fused attention."""
    if torch.backends.cudnn.enabled is not agnostic:
        return
    torch.backends.cudnn.enabled = not agnostic
    for choose in (
        torch.backends.cuda.enable_flash_sdp,
        torch.backends.cuda.enable_mem_efficient_sdp,
        torch.backends.cuda.enable_cudnn_sdp,
    ):
        choose(not agnostic)


def _check_instruction_set() -> None:
    """The variables must have been there when torch's libraries were loaded; those set later change nothing."""
    if pinned(started_with()) is not None:
        return
    closest = min(INSTRUCTION_SETS.values(), key=lambda each: len(lacking(each, os.environ)))
    later = pinned(os.environ)
    what = f"the variables for {later.name} were set after it had started" if later else "the variables are not set"
    rule = "D2 needs CPU kernels limited to one instruction set"
    raise PinsTooLate(f"{rule}, but in this process {what}; {mend(closest)}")


def _warn_of_gpu(device: torch.device) -> None:
    if device.type == "cpu":
        return
    warnings.warn(
        f"D2 was not tried on {_device_name(device)} together with other kinds: cuDNN and fused attention are off, but "
        "cuBLAS still chooses its kernels by the device. Bits repeat on devices of this kind; do not count on more",
        ConsistencyWarning,
        stacklevel=3,
    )


def pins(device: torch.device) -> dict[str, str]:
    """Return everything outside the job that its bits depend on, by name, as it is in this process."""
    float32 = float32_on(device)
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "processor": processor(),
        "device": _device_name(device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "onednn": str(torch.backends.mkldnn.is_available()),
        "threads": str(torch.get_num_threads()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
        "tf32": str(float32.matmul == TF32),
        "convolutions": float32.convolutions,
        "agnostic_kernels": str(not torch.backends.cudnn.enabled),
        **device_pins(device),
        **{name: os.environ.get(name, "") for name in _ENVIRONMENT},
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return "cpu"
    return str(torch.get_device_module(device).get_device_name(device))


_DRIVERS = (Path("/sys/module/nvidia/version"), Path("/sys/module/amdgpu/version"))


def device_pins(device: torch.device) -> dict[str, str]:
    """Return the pins of a device by name; none of the CPU, and of what torch does not tell.

    Kernels split sums over the multiprocessors, and dropout draws by their number.
    """
    if device.type == "cpu":
        return {}
    properties = torch.get_device_module(device).get_device_properties(device)
    told = {
        "multiprocessors": getattr(properties, "multi_processor_count", None)
        or getattr(properties, "max_compute_units", None),
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),  # MIOpen's, with ROCm
        "driver": getattr(properties, "driver_version", None) or next(_drivers(), None),
    }
    return {name: str(value) for name, value in told.items() if value}


def _drivers() -> Iterator[Any]:
    for path in _DRIVERS:
        with suppress(OSError):
            yield path.read_text().strip()


def compare_pins(saved: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Hold a checkpoint's pins against this process's.

    PinsDiffer where a setting differs, with the mend; ConsistencyWarning where the machine or its software does, unless
    both are limited to one instruction set and only the processor differs (D2).
    """
    saved = {**_BEFORE, **saved}
    differing = _differing(saved, current)
    settings = [_sentence(name, saved, current) for name in differing if name in _CHOSEN]
    if settings:
        raise PinsDiffer(
            "the checkpoint was made under other settings: "
            + "; ".join(settings)
            + ". Start with the checkpoint's settings to go on with the same bits"
        )
    if differing:
        warnings.warn(
            "the checkpoint was made on another system: "
            + "; ".join(_sentence(n, saved, current) for n in differing)
            + ". Training goes on, but its last bits may differ from an uninterrupted run's",
            ConsistencyWarning,
            stacklevel=2,
        )


def _sentence(name: str, saved: Mapping[str, str], current: Mapping[str, str]) -> str:
    shown = {"tf32": "tf32 of matmul"}.get(name, name)
    return f"{shown} was {saved[name] or 'unset'} and is {current.get(name) or 'unset'}"


def check_group(group: Group, names: Sequence[object], device: torch.device) -> None:
    """Hold the pins of a group's members against each other, on the master; all members call it.

    names: who they are, in the group's order. PinsDiffer, ConsistencyWarning: see `check_members`.
    """
    everyone = group.gather_trees(pins(device))
    if everyone:
        check_members(everyone, names)


def check_members(members: Sequence[Mapping[str, str]], names: Sequence[object]) -> None:
    """Hold the pins of a group's members against the master's, the first; `names` say who they are.

    PinsDiffer where a setting differs. ConsistencyWarning where a device is of another kind, unless D2 covers it: the
    job's bits then depend on which worker runs where.
    """
    for name, pins_of_member in zip(names[1:], members[1:]):
        differing = _differing(members[0], pins_of_member)
        if not differing:
            continue
        first = members[0]
        what = "; ".join(
            f"{key} is {first.get(key) or 'unset'} on {names[0]} and {pins_of_member.get(key) or 'unset'} on {name}"
            for key in differing
        )
        if any(key in _CHOSEN for key in differing):
            raise PinsDiffer(f"the trainers of a job run under different settings: {what}; give all of them the same")
        warnings.warn(
            f"the trainers of a job are of different kinds: {what}. Its last bits depend on who computes what; use "
            "devices of one kind, or determinism D2 where it covers them",
            ConsistencyWarning,
            stacklevel=2,
        )


def _differing(saved: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    covered: tuple[str, ...] = _COVERED if pinned(saved) is not None and pinned(saved) == pinned(current) else ()
    if (saved.get("device") == "cpu") != (current.get("device") == "cpu"):
        covered += _OF_GPUS
    return [name for name in saved if saved[name] != current.get(name) and name not in covered]


_MIOPEN = ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")


_COMPILER = ("TORCHINDUCTOR_CACHE_DIR",)


def keep_kernels_on_the_node(
    environment: MutableMapping[str, str] = os.environ, rocm: str | None = torch.version.hip
) -> None:
    """Let MIOpen (with ROCm) and torch.compile use folders in the node's temporary one, unless variables name others.

    Call it before the first work on a GPU, and before the first step of an optimizer: they read the variables then.
    """
    for name, variables in [("inductor", _COMPILER)] + [("miopen", _MIOPEN)] * (rocm is not None):
        unset = [variable for variable in variables if not environment.get(variable)]
        if unset:
            environment.update(dict.fromkeys(unset, str(_own_folder(name))))


def _own_folder(name: str) -> Path:
    """One for all of the user's processes on this node; a new one where somebody else has taken its name."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


_ON_PROCESSORS = ("", "mkldnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")  # "": for all that has none of its own


_CUDNN = ("cudnn", "cudnn.conv", "cudnn.rnn")


def set_float32(float32: Float32) -> None:
    """Set all switches, whatever has set them before."""
    matmul, convolutions = float32.matmul, float32.convolutions
    torch.set_float32_matmul_precision("high" if matmul == TF32 else "highest")
    torch.backends.cudnn.allow_tf32 = convolutions == TF32
    torch.backends.cuda.matmul.allow_tf32 = matmul == TF32
    if _has_newer():
        told = {"cuda.matmul": matmul, **dict.fromkeys(_CUDNN, convolutions), **dict.fromkeys(_ON_PROCESSORS, IEEE)}
        for name, value in told.items():
            _switch(name).fp32_precision = value


def float32_on(device: torch.device) -> Float32:
    """In what such a device may multiply now; what a processor computes in bfloat16 counts as TF32."""
    on_cpu = device.type == "cpu"
    if _has_newer():
        products, layers = ("mkldnn.matmul", _ON_PROCESSORS[3:]) if on_cpu else ("cuda.matmul", _CUDNN[1:])
        return Float32(_said(_is_cut(products)), _said(any(map(_is_cut, layers))))
    cut = torch.get_float32_matmul_precision() != "highest" if on_cpu else torch.backends.cuda.matmul.allow_tf32
    return Float32(_said(cut), _said(not on_cpu and torch.backends.cudnn.allow_tf32))


def _has_newer() -> bool:
    return hasattr(torch.backends, "fp32_precision")  # torch 2.9


def _switch(name: str) -> Any:
    return attrgetter(name)(torch.backends) if name else torch.backends


def _is_cut(name: str) -> bool:
    return str(_switch(name).fp32_precision) not in (IEEE, "none")


def _said(cut: bool) -> str:
    return TF32 if cut else IEEE
