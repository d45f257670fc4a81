"""Making samples in a process that trains, with the bits that preprocessors give them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from preprocess.ring.process import use_one_thread
from trainers.repeatable.determinism import use_deterministic


@contextmanager
def like_preprocessors() -> Iterator[None]:
    """Let torch compute as it does in preprocessors, for transforms that use it; then as training had it, on which that
    has its bits.
    """
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    use_one_thread()
    use_deterministic(False)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        use_deterministic(deterministic)
