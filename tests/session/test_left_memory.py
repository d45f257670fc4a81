"""What a job leaves stays for one that comes at once, and goes back when none does."""

from __future__ import annotations

import subprocess
import sys

from tests.trainers.test_allocator import glibc

PROGRAM = """
from pathlib import Path
import torch
from fleet.workers.trainer_rank import LeftMemory
from trainers.device.device_memory import keep_freed_memory

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

def job(tensors):
    made = [torch.ones(1 << 20) for _ in range(tensors)]  # 4 MiB each
    return megabytes()

keep_freed_memory()
memory = LeftMemory(torch.device("cpu"))
for tensors in (20, 200):
    held = job(tensors)
    memory.leave()
    kept = megabytes()
    memory.rest()
    print(held - kept, kept - megabytes())
"""


@glibc
def test_little_stays_until_no_job_has_come_for_a_while() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    (early, late), (at_once, later) = (map(float, line.split()) for line in done.stdout.splitlines())
    assert early < 5 and late > 40, "80 MiB stay for the next job"
    assert at_once > 400 and later < 40, "800 MiB go back as the job ends"
