"""What a job that is trained in the tests' own process must leave as it was."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fleet.machine.launch.launched import STOPPING


@contextmanager
def kept_settings() -> Iterator[None]:
    """Give this process's handlers of signals, and torch's settings, back at the end."""
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        for number, handler in handlers.items():
            signal.signal(number, handler)
