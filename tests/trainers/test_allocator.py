"""What a step frees stays with the process until a job ends."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from pathlib import Path
from trainers.device.device_memory import give_freed_memory_back, keep_freed_memory
import torch

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

def step():
    tensors = [torch.ones(1 << 20) for _ in range(10)]  # 40 MiB

keep_freed_memory()
for _ in range(3):
    step()
before = faults()
for _ in range(5):
    step()
again, held = faults() - before, megabytes()
give_freed_memory_back(torch.device("cpu"), unless=1 << 30)
kept = megabytes()
give_freed_memory_back(torch.device("cpu"), unless=1 << 20)
print(again, kept - megabytes(), held - kept)
"""

glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc"
)


def run(**variables: str) -> tuple[int, float, float]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env={**environment, **variables}, capture_output=True, text=True, check=True, timeout=120
    )
    faults, given, early = done.stdout.split()
    return int(faults), float(given), float(early)


@glibc
def test_a_step_touches_no_page_anew_and_a_job_s_end_gives_them_back() -> None:
    faults, given, early = run()
    assert faults < 5_000, "each of these steps has 10,240 pages"
    assert given > 30 and early < 5, "little stays for the next job, much goes back"


@glibc
def test_what_the_user_asked_of_the_c_library_stands() -> None:
    assert run(MALLOC_MMAP_THRESHOLD_="65536")[0] > 10_000
