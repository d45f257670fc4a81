"""Single things that the rig refuses or counts."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch
import torch_rig

from tests.device.programs.refusals import refusal
from trainers.device.device_memory import forget_peak, keep_to_share, room_on

DEVICE = torch.device("rig", 0)


def read_by_the_host() -> float:
    tensor = torch.ones(3, device=DEVICE)
    return ctypes.c_float.from_address(tensor.data_ptr()).value


def work_after_a_fork() -> str:
    torch.ones(3, device=DEVICE).cpu()
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, refusal(lambda: torch.ones(3, device=DEVICE)).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        return file.read()


def room_of_a_member(members: int) -> float:
    """As part of a device's memory."""
    keep_to_share(DEVICE, members)
    forget_peak(DEVICE)
    return room_on(DEVICE) / int(torch.get_device_module(DEVICE).mem_get_info(DEVICE)[1])


def two_devices() -> str:
    for index in (2, 3):
        torch.accelerator.set_device_index(index)
        refused = refusal(lambda: torch.ones(3, device="rig").cpu())
    return refused


def index_out_of_range() -> str:
    table, index = torch.ones(4, 3, device=DEVICE), torch.tensor([7]).to(DEVICE)
    found = torch.nn.functional.embedding(index, table)
    return refusal(found.cpu)


def too_much_memory() -> str:
    return refusal(lambda: [torch.ones(1 << 18, device=DEVICE) for _ in range(10)])


def counted() -> dict[str, Any]:
    """Return the counts of single things done."""
    host, pinned = torch.ones(1000), torch.ones(1000).pin_memory()
    there, side = torch.ones(1000, device=DEVICE), torch.Stream(DEVICE)
    torch.accelerator.synchronize()
    done = {
        "one sum": lambda: there.add_(1),
        "pinned upload": lambda: pinned.to(DEVICE, non_blocking=True),
        "plain upload": lambda: host.to(DEVICE),
        "item": lambda: there[0].item(),
        "wait": lambda: side.wait_stream(torch.accelerator.current_stream()),
        "record": lambda: there.record_stream(side),
        "nonzero": lambda: there.nonzero(),
        "between": lambda: there.to("rig:1"),
    }
    counts: dict[str, Any] = {}
    for name, work in done.items():
        torch_rig.counts()
        kept = work()
        counts[name] = torch_rig.counts()
    del kept
    before = torch_rig.memory(0)["used"]
    another = torch.empty(1000, device=DEVICE)
    torch.accelerator.memory.reset_peak_memory_stats(DEVICE)
    used = torch_rig.memory(0)["used"] - before
    more = torch.empty(1000, device=DEVICE)
    counts["memory"] = [used, torch_rig.memory(0)["peak"] - before]
    del another, more
    return counts
