"""Train in three stages on other devices, and hold the losses against stock DDP (EasyScale, SC'23, 5.1.1, Figure 10).

    python examples/three_stages.py --out runs/three-stages

A job of 4 virtual workers trains 100 mini-batches on 4 trainers, 100 on 2, and 100 on 3 of mixed kinds: one as it is,
two that are limited to SSE4 instructions. Between stages it is saved, ended and started again. Losses are those of the
last worker. Stock DDP trains on 4 processes of one kind all the time; against D2 it has D2's kernels, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainers import Group, Trainer, level_of, pin, read, write
from trainers.repeatable.instruction_sets import INSTRUCTION_SETS, environment
from trainers.repeatable.random_state import seed_everything
from trainers.zoo import ResNet

WORKERS, BATCH, SEED = 4, 8, 3
STAGES = ((1, 1, 1, 1), (1, 1), (1, 0, 0))  # of each trainer: whether it is of the first kind
LEVELS = ("D0", "D1", "D0+D2", "D1+D2")
SECONDS = 1200.0
ROOT = Path(__file__).resolve().parents[1]
OTHER_KIND = {name: value for name, value in INSTRUCTION_SETS["sse4"].pins.items() if name != "MKL_CBWR"}
"""What makes torch's libraries see another kind of processor."""

app = typer.Typer(pretty_exceptions_enable=False)


class Pictures:
    """The task: pictures of ten kinds, whole numbers so that they do not depend on the processor."""

    batch_size, seed = BATCH, SEED

    def __init__(self, steps: int) -> None:
        self.samples = WORKERS * BATCH * steps

    def model(self) -> nn.Module:
        return ResNet((1, 1), 8)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def dataset(self, train: bool) -> TensorDataset:
        generator = torch.Generator().manual_seed(SEED)
        kinds = torch.randint(-128, 128, (10, 3, 12, 12), generator=generator)
        targets = torch.randint(0, 10, (self.samples,), generator=generator)
        noise = torch.randint(-256, 256, (self.samples, 3, 12, 12), generator=generator)
        return TensorDataset((kinds[targets] + noise) / 128, targets)


@app.callback(invoke_without_command=True)
def compare(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="folder for the figures")] = Path("runs/three-stages"),
    steps: Annotated[int, typer.Option(help="mini-batches of each stage")] = 100,
    levels: Annotated[str, typer.Option(help="which to compare, by commas")] = ",".join(LEVELS),
) -> None:
    """Train everything and write losses.json, three-stages.html and three-stages.svg."""
    if context.invoked_subcommand is not None:
        return
    out.mkdir(parents=True, exist_ok=True)
    chosen = levels.split(",")
    losses: dict[str, list[float]] = {}
    for level in chosen:
        mixed = level_of(level).mixed_kinds
        yardstick = "DDP-heter" if mixed else "DDP-homo"
        if yardstick not in losses:
            losses[yardstick] = stock_ddp(out, steps, mixed)
        losses[level] = in_stages(out, steps, level)
    (out / "losses.json").write_text(json.dumps({"steps": steps, "losses": losses}))
    differences = {level: _difference(losses, level) for level in chosen}
    plot(out / "three-stages.html", differences, steps)
    (out / "three-stages.svg").write_text(drawing(differences, steps))
    for level, values in differences.items():
        stages = [max(map(abs, values[at : at + steps])) for at in range(0, 3 * steps, steps)]
        print(f"{level:6s} largest difference from DDP in each stage:", *(f"{value:.3g}" for value in stages))


def in_stages(out: Path, steps: int, level: str) -> list[float]:
    """Train a job in the three stages, each of new processes; return the last worker's losses."""
    from fleet.machine.launch.local_launch import find_mpiexec

    mpi, losses = find_mpiexec(), []
    for stage, kinds in enumerate(STAGES):
        command: list[str] = []
        for kind in kinds:
            program = ["env", *_assignments(level, bool(kind)), sys.executable, "-m", "mpi4py", __file__]
            program += ["stage", str(out.absolute()), level, str(stage), str(steps)]
            command += [":", "-n", "1", *program] if command else mpi.command(1, program)
        _finish([subprocess.Popen(command, env={**_clean(), **mpi.environment()})])
        losses += json.loads((out / "stage.json").read_text())
    return losses


def stock_ddp(out: Path, steps: int, mixed: bool) -> list[float]:
    """Train the same job with torch's DistributedDataParallel; return the last process's losses."""
    (out / "store").unlink(missing_ok=True)
    variables = {**_clean(), "GLOO_SOCKET_IFNAME": "lo", **(environment("sse4") if mixed else {})}
    level = "D2" if mixed else "D1"
    command = [sys.executable, __file__, "ddp", str(out.absolute()), level, str(steps)]
    _finish([subprocess.Popen([*command, str(rank)], env=variables) for rank in range(WORKERS)])
    losses: list[float] = json.loads((out / "ddp.json").read_text())
    return losses


@app.command(hidden=True)
def stage(out: Path, level: str, stage: int, steps: int) -> None:
    """One trainer's part in a stage, under mpiexec."""
    from mpi4py import MPI

    torch.set_num_threads(1)
    _forget_the_kind()
    world, path = MPI.COMM_WORLD, out / "stage.h5"
    with Group.form(world, range(world.size), 10, timeout=SECONDS) as group:
        task = Pictures(steps * len(STAGES))
        trainer = Trainer(task, WORKERS, group, level=level)
        if stage:
            trainer.restore(read(path) if group.is_master else None)
        inputs, targets = task.dataset(True).tensors
        order = torch.randperm(task.samples, generator=torch.Generator().manual_seed(SEED))
        plan, losses = trainer.plan(task.samples), []
        for step in range(stage * steps, (stage + 1) * steps):
            chosen = [order[plan.positions(worker.rank, step)] for worker in trainer.workers]
            sums = trainer.step([(inputs[indices], targets[indices]) for indices in chosen])
            losses.append(sums[-1] / BATCH)
        checkpoint = trainer.snapshot()
        if checkpoint is not None:
            write(path, checkpoint)
        if trainer.workers[-1].rank == WORKERS - 1:
            (out / "stage.json").write_text(json.dumps(losses))


@app.command(hidden=True)
def ddp(out: Path, level: str, steps: int, rank: int) -> None:
    """One process of stock DDP."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    pin(1, level)
    dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=WORKERS)
    task = Pictures(steps * len(STAGES))
    seed_everything(SEED)
    model = task.model()
    optimizer = task.optimizer(model)
    parallel = DistributedDataParallel(model)
    seed_everything(SEED + 1 + rank)
    data = task.dataset(True)
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data, seed=SEED))
    losses = []
    for input, target in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(parallel(input), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if rank == WORKERS - 1:
        (out / "ddp.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


def plot(path: Path, differences: Mapping[str, Sequence[float]], steps: int) -> None:
    """Write the figure as a page that can be zoomed."""
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    titles = ("D0 and D1 against DDP-homo", "D0+D2 and D1+D2 against DDP-heter")
    figure = make_subplots(1, 2, subplot_titles=titles)
    for level, values in differences.items():
        column = 2 if level_of(level).mixed_kinds else 1
        figure.add_trace(graph_objects.Scatter(y=list(values), name=level), row=1, col=column)
    for at in (steps, 2 * steps):
        figure.add_vline(x=at, line_dash="dot")
    figure.update_xaxes(title="mini-batch")
    figure.update_yaxes(title="difference of the training loss")
    figure.write_html(path, include_plotlyjs=True)


def drawing(differences: Mapping[str, Sequence[float]], steps: int) -> str:
    """The figure as an SVG: a row for each level, stages apart by dotted lines."""
    width, height, left = 600, 70, 70
    largest = max(max(map(abs, values)) for values in differences.values()) or 1.0
    total = 3 * steps
    parts = []
    for row, (level, values) in enumerate(differences.items()):
        middle = row * height + height / 2
        points = " ".join(
            f"{left + width * step / total:.1f},{middle - 0.45 * height * value / largest:.1f}"
            for step, value in enumerate(values)
        )
        parts.append(f'<text x="4" y="{middle + 4:.0f}">{level}</text>')
        parts.append(f'<polyline points="{points}" fill="none" stroke="#2458a6" stroke-width="1.2"/>')
    bottom = len(differences) * height
    for number, words in enumerate(("4 trainers", "2 trainers", "3 trainers, mixed kinds")):
        at = left + width * number / 3
        parts.append(f'<line x1="{at}" y1="0" x2="{at}" y2="{bottom}" stroke="#888" stroke-dasharray="2 3"/>')
        parts.append(f'<text x="{at + 6}" y="{bottom + 16}">{words}</text>')
    parts.append(f'<text x="{left + 6}" y="{bottom + 34}">rows: +/- {largest / 0.9:.2g} of the training loss</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 10} {bottom + 42}" '
    style = 'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head + style, *parts, "</svg>\n"])


def _difference(losses: Mapping[str, Sequence[float]], level: str) -> list[float]:
    yardstick = losses["DDP-heter" if level_of(level).mixed_kinds else "DDP-homo"]
    return [own - other for own, other in zip(losses[level], yardstick)]


def _assignments(level: str, first_kind: bool) -> list[str]:
    """What a trainer is started with: the pins of D2, and what makes it of another kind."""
    pins: dict[str, Any] = environment("sse4") if level_of(level).mixed_kinds else {}
    return [f"{name}={value}" for name, value in {**({} if first_kind else OTHER_KIND), **pins}.items()]


def _forget_the_kind() -> None:
    """Let every library choose its kernels now, and take away what made it choose: a real processor tells nobody."""
    if "MKL_CBWR" in os.environ:
        return  # it was started with all pins of D2
    picture = torch.ones(1, 4, 8, 8)
    functional.conv2d(picture, torch.ones(4, 4, 3, 3)).flatten(1) @ torch.ones(144, 4)
    for name in OTHER_KIND:
        os.environ.pop(name, None)


def _clean() -> dict[str, str]:
    pins = {name for each in INSTRUCTION_SETS.values() for name in each.pins}
    inherited = {name: value for name, value in os.environ.items() if name not in pins}
    return {**inherited, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _finish(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    try:
        codes = [process.wait(SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        sys.exit(f"three_stages: a process failed, exit codes {codes}; see its messages above")


if __name__ == "__main__":
    app()
