"""The yardstick as a service: stock DDP over gloo, its loop written as a user writes it.

Reads requests from standard input, one JSON object a line: {"task", "ranks", "steps", "reply"}. Forks the ranks, which
write their states after every step to `reply`.RANK; then answers with a line, "done" or what went wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tests.trainers.support.equality_gans import GANS, NOISE, GanTask, judged
from tests.trainers.support.equality_states import State, merged, state
from tests.trainers.support.equality_tasks import TASKS, EqualityTask, Remembering

SECONDS = 200.0


def seed(value: int) -> None:
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def cut(value: Any, parts: int) -> list[Any]:
    if isinstance(value, Tensor):
        return list(torch.tensor_split(value, parts))
    if isinstance(value, dict):
        return [dict(zip(value, columns)) for columns in zip(*(cut(item, parts) for item in value.values()))]
    return [tuple(columns) for columns in zip(*(cut(item, parts) for item in value))]


def length(target: Any) -> int:
    return len(target) if isinstance(target, Tensor) else length(target[0])


def gradients(task: EqualityTask, parallel: nn.Module, batch: Any, wanted: int | None) -> None:
    micro_batches = [tuple(batch)]
    if wanted is not None:
        parts = min(wanted, length(batch[1]))
        micro_batches = list(zip(cut(batch[0], parts), cut(batch[1], parts)))
    for number, micro_batch in enumerate(micro_batches, 1):
        last = number == len(micro_batches)
        with nullcontext() if last else parallel.no_sync():  # type: ignore[operator]
            with torch.autocast("cpu", torch.bfloat16) if task.autocast == "bfloat16" else nullcontext():
                loss = task.loss(parallel, micro_batch)
            if wanted is not None:
                loss = loss / (length(batch[1]) / length(micro_batch[1]))
            loss.backward()


def compile_each_shape(model: nn.Module) -> None:
    import torch._dynamo
    import torch._inductor.config

    torch._dynamo.config.optimize_ddp = False
    torch._inductor.config.compile_threads = 1
    model.compile(dynamic=False)


def changed(task: EqualityTask, epoch: int, samples: int) -> tuple[int | None, int | None, list[float], list[int]]:
    """What an epoch's batches are, in how many parts; by step, its learning rate's factor and its schedule's steps."""
    if task.batches is None:
        return None, task.accumulate, [1.0] * samples, [1] * samples
    own, sizes, warm_up = task.batch_size, task.batches.sizes, task.batches.warm_up
    since = max((start for start in sizes if start <= epoch), default=None)
    size, parts = (own, 1) if since is None else sizes[since]
    steps, whole = -(-samples // size), task.batches.factor(size / own)
    factors = [whole] * steps
    if warm_up and since is not None:  # such tasks have one change alone
        factors = [1.0 + (whole - 1.0) * min(1.0, (epoch - since + step / steps) / warm_up) for step in range(steps)]
    ends = [-(-min(samples, step * size) // own) for step in range(steps + 1)]
    return size, parts if parts > 1 else None, factors, [after - before for before, after in zip(ends, ends[1:])]


def train(task: EqualityTask, rank: int, steps: int) -> dict[str, State]:
    seed(task.seed)
    model = task.model()
    optimizer = task.optimizer(model)
    schedule = task.scheduler(optimizer)
    if task.compile:
        compile_each_shape(model)
    parallel = DistributedDataParallel(model)
    seed(task.seed + 1 + rank)
    sampler: DistributedSampler[Any] = DistributedSampler(task.dataset(True), seed=task.order_seed)  # type: ignore[arg-type]
    loader = DataLoader(task.dataset(True), task.batch_size, sampler=sampler)  # type: ignore[arg-type]
    states: dict[str, State] = {}
    epoch = 0
    while len(states) < steps:
        sampler.set_epoch(epoch)
        size, parts, factors, turns = changed(task, epoch, len(sampler))
        if size is not None:
            loader = DataLoader(task.dataset(True), size, sampler=sampler)  # type: ignore[arg-type]
        for step, batch in enumerate(loader):
            optimizer.zero_grad()
            gradients(task, parallel, batch, parts)
            if task.clip_norm is not None:
                nn.utils.clip_grad_norm_(parallel.parameters(), task.clip_norm)
            if task.clip_value is not None:
                nn.utils.clip_grad_value_(parallel.parameters(), task.clip_value)
            if task.between is not None:
                task.between(model)
            given = [group["lr"] for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["lr"] *= factors[step]
            optimizer.step()
            for group, rate in zip(optimizer.param_groups, given):
                group["lr"] = rate
            task.after_step(model)
            if schedule is not None:
                for _ in range(turns[step]):
                    schedule.step()
            number = str(len(states) + 1)
            own = task.state() if isinstance(task, Remembering) else None
            states[number] = state(model.named_parameters(), model.named_buffers(), optimizer.state_dict(), own)
            if len(states) == steps:
                break
        epoch += 1
    return states


def train_gan(task: GanTask, rank: int, steps: int) -> dict[str, State]:
    """Two networks, each in a DDP of its own; while the generator learns, the critic is frozen."""
    seed(task.seed)
    model = task.model()
    optimizers = task.optimizers(model)
    schedule = task.schedulers(optimizers)["generator"]
    generator, critic = DistributedDataParallel(model.generator), DistributedDataParallel(model.critic)
    seed(task.seed + 1 + rank)
    sampler: DistributedSampler[Any] = DistributedSampler(task.dataset(True), seed=task.seed)  # type: ignore[arg-type]
    loader = DataLoader(task.dataset(True), task.batch_size, sampler=sampler)  # type: ignore[arg-type]
    states: dict[str, State] = {}
    epoch = 0
    while len(states) < steps:
        sampler.set_epoch(epoch)
        for images, _ in loader:
            real = images.flatten(1)
            fake = generator(torch.randn(len(real), NOISE))
            optimizers["critic"].zero_grad()
            (judged(critic(real), 1.0) + judged(critic(fake.detach()), 0.0)).backward()
            if task.clip_norm is not None:
                nn.utils.clip_grad_norm_(critic.parameters(), task.clip_norm)
            optimizers["critic"].step()
            if len(states) % task.every == task.every - 1:
                critic.requires_grad_(False)
                optimizers["generator"].zero_grad()
                judged(critic(fake), 1.0).backward()
                if task.clip_norm is not None:
                    nn.utils.clip_grad_norm_(generator.parameters(), task.clip_norm)
                optimizers["generator"].step()
                schedule.step()
                critic.requires_grad_(True)
            both = merged([optimizers["critic"].state_dict(), optimizers["generator"].state_dict()])
            own = {"steps": len(states) + 1}
            states[str(len(states) + 1)] = state(model.named_parameters(), model.named_buffers(), both, own)
            if len(states) == steps:
                break
        epoch += 1
    return states


def be_rank(rank: int, request: dict[str, Any]) -> None:
    reply = Path(request["reply"])
    store = f"file://{reply}.store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=request["ranks"])
    name, steps = request["task"], request["steps"]
    states = train_gan(GANS[name], rank, steps) if name in GANS else train(TASKS[name], rank, steps)
    Path(f"{reply}.{rank}").write_text(json.dumps(states))
    dist.barrier()
    dist.destroy_process_group()


def fork(rank: int, request: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        be_rank(rank, request)
        status = 0
    except BaseException:
        Path(f"{request['reply']}.error").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def serve(request: dict[str, Any]) -> str:
    (TASKS.get(request["task"]) or GANS[request["task"]]).model()  # imports what the ranks need, once
    children = [fork(rank, request) for rank in range(request["ranks"])]
    begin, failed = time.monotonic(), ""
    while children and not failed:
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.remove(child)
                failed = failed or (f"a rank ended with status {status}" if status else "")
        if time.monotonic() - begin > SECONDS:
            failed = f"not done after {SECONDS:g} s"
        time.sleep(0.005)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    error = Path(f"{request['reply']}.error")
    return f"{failed}: {error.read_text() if error.exists() else ''}" if failed else "done"


def main() -> None:
    torch.set_num_threads(1)
    for line in iter(sys.stdin.readline, "null\n"):
        print(json.dumps(serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
