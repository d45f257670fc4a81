"""`fleet trace-tensors`: hashes of all that a job's steps compute."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fleet.commands.one_job.options import TrainOptions
from fleet.commands.train import (
    Convolutions,
    Ddp,
    DeterminismLevel,
    Device,
    InstructionSetName,
    Matmul,
    Reduce,
    Resume,
    Steps,
    TaskArgument,
    Threads,
    TrainerCount,
    VirtualWorkers,
    run_job,
)


def trace_tensors(
    task: TaskArgument,
    virtual_workers: VirtualWorkers,
    steps: Steps,
    out: Annotated[Path, typer.Option(help="where the hashes go, as JSON lines", show_default=False)],
    trainers: TrainerCount = None,
    checkpoint: Annotated[Path | None, typer.Option(help="where the job's state goes; default: nowhere")] = None,
    resume: Resume = None,
    determinism: DeterminismLevel = "D1",
    ddp: Ddp = False,
    reduce: Reduce = "mpi",
    threads: Threads = 1,
    device: Device = "auto",
    instruction_set: InstructionSetName = "avx2",
    matmul: Matmul = "ieee",
    convolutions: Convolutions = "tf32",
) -> None:
    """Train as `fleet train` does, with the same bits, and record a hash of every module's outputs and gradients.

    `fleet compare` of two such files finds the first module that differs.
    """
    options = TrainOptions(
        task, virtual_workers, steps, trainers, checkpoint, resume, determinism, ddp, reduce, threads, device,
        instruction_set, out, matmul, convolutions,
    )  # fmt: skip
    sys.exit(run_job(options))
