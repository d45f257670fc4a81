"""Kernels that torch.compile makes for one model, so that they repeat: a function of the shapes and of the machine.

By itself torch.compile makes kernels for any shape once it has seen a second one, gives up after eight, and lets
GPUs try which kernel is the fastest: what a batch is computed with would hang on the batches before it, and would be
another after a move or a restart. DDP's ranks that compile have these bits where they do as this module does.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import torch
from torch import nn

from trainers.task.task_options import GRAPHS

_MOST_SHAPES = 1024
"""Shapes of batches and sizes of networks for which the kernels of one class are kept; one more is an error."""
_SECONDS = 60.0
"""How long a compiler may take to say its version."""


class CannotCompile(RuntimeError):
    """There is nothing that could make kernels for this device, or they would not keep what a level promises."""


def compile_model(
    job: str, model: nn.Module, how: bool | str, mixed_kinds: bool, device: torch.device
) -> dict[str, str]:
    """Let each call of the model run kernels made for its shapes, at the first call with them. Nothing if `how` is off.

    how: see `trainers.task.task_options.StepOptions.compile`. mixed_kinds: whether the job's bits are to be those of
    other kinds of devices, too (D2). Returns what the job's pins have besides those of the process, which it sets: the
    compiler. CannotCompile.
    """
    if not how:
        return {}
    if mixed_kinds:
        raise CannotCompile(
            f"job {job} is to be compiled, and D2 to give the same bits on devices of different kinds; torch.compile "
            "makes its kernels for the device at hand. Choose D1, or leave `compile` out"
        )
    try:
        compiler = _of_processors() if device.type == "cpu" else _of_accelerators(device.type)
    except CannotCompile as error:
        raise CannotCompile(f"job {job} is to be compiled, but {error}, or leave `compile` out") from None
    hold_compiler_still()
    model.compile(dynamic=False, options={"triton.cudagraphs": how == GRAPHS})
    return {"compiler": compiler}


def hold_compiler_still() -> None:
    """Set this process's compiler: no trials of kernels, no kernels for many shapes, no giving up without a word."""
    import torch._dynamo
    import torch._inductor.config

    torch._inductor.config.deterministic = True
    torch._inductor.config.compile_threads = 1  # no pool of processes beside each trainer
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = _MOST_SHAPES
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.config.optimize_ddp = False  # DDP's ranks would cut the model at its buckets


def forget_graphs() -> None:
    """Let go of the graphs of this process's devices, and of the memory that they keep; kernels stay on the disk."""
    if "torch._inductor.cudagraph_trees" in sys.modules:
        import torch._dynamo

        torch._dynamo.reset()


def _of_processors() -> str:
    from torch._inductor import cpp_builder, exc

    try:
        compiler = cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        what = "there is no C++ compiler here: install g++ or clang++, name one in CXX"
        raise CannotCompile(what) from None
    told = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=_SECONDS)
    return told.stdout.partition("\n")[0]


def _of_accelerators(kind: str) -> str:
    from torch.utils._triton import has_triton

    if not has_triton():
        raise CannotCompile(f"torch has no Triton for devices of the kind {kind}: install it")
    return f"Triton {version('triton')}"
