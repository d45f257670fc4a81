"""Members of a ring in threads, whose messages go as late as they may: when all members wait, one of them goes.

What a sender changes before it has waited, the receiver gets changed; what a receiver reads before, is not a number.
As MPI asks, nothing is received into what is being sent, and each message is waited for.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

SECONDS = 20.0


class Late:
    """A message under way, at the end of its sender or of its receiver."""

    def __init__(self, memory: Tensor) -> None:
        self.memory, self.over, self.awaited = memory, False, False

    @property
    def done(self) -> bool:
        """A look that says so completes the message."""
        self.awaited |= self.over
        return self.over

    def overlaps(self, memory: Tensor) -> bool:
        starts, ends = zip(*((each.data_ptr(), each.data_ptr() + each.nbytes) for each in (self.memory, memory)))
        return bool(max(starts) < min(ends))


class Lateness:
    """What all members share: who waits, and whose messages go then: any one's, or those of some before all others'."""

    def __init__(self, members: int, seed: int) -> None:
        self.links = [LateLink(self, index) for index in range(members)]
        self.turn, self._draw = threading.Condition(), random.Random(seed)
        self._first = self._draw.sample(range(members), members) if seed % 2 else []
        self.waiting: set[int] = set()
        self.gone: set[int] = set()

    def let_one_go(self) -> None:
        """If all members wait, complete a message that is the next of its sender and of its receiver."""
        ready = [each for each in self.links if each.sends and self.links[each.index - 1].receives]
        if ready and len(self.waiting | self.gone) == len(self.links):
            of_rank = {each.index: each for each in ready}
            sender = next((of_rank[index] for index in self._first if index in of_rank), self._draw.choice(ready))
            mine, theirs = sender.sends.popleft(), self.links[sender.index - 1].receives.popleft()
            theirs.memory.copy_(mine.memory)
            mine.over = theirs.over = True
            self.waiting.clear()
            self.turn.notify_all()


class LateLink:
    """One member's place in the ring."""

    def __init__(self, shared: Lateness, index: int) -> None:
        self.index, self._shared = index, shared
        self.sends: deque[Late] = deque()
        self.receives: deque[Late] = deque()
        self.begun: list[Late] = []

    def send(self, outgoing: Tensor) -> Late:
        with self._shared.turn:
            return self._begin(self.sends, outgoing)

    def receive(self, incoming: Tensor) -> Late:
        with self._shared.turn:
            if any(each.overlaps(incoming) for each in self.sends):
                raise ValueError("what is being sent is received into")
            incoming.fill_(float("nan"))
            return self._begin(self.receives, incoming)

    def _begin(self, queue: deque[Late], memory: Tensor) -> Late:
        queue.append(Late(memory))
        self.begun.append(queue[-1])
        return queue[-1]

    def wait(self, pending: Sequence[Any]) -> None:
        for message in pending:
            message.awaited = True
        self._until(lambda: all(message.over for message in pending))

    def leave(self) -> None:
        """Wait for nothing more; what was sent goes all the same."""
        with self._shared.turn:
            self._shared.gone.add(self.index)
            self._shared.let_one_go()

    def _until(self, is_over: Callable[[], bool]) -> None:
        shared = self._shared
        with shared.turn:
            while not is_over():
                shared.waiting.add(self.index)
                shared.let_one_go()
                if not is_over() and self.index in shared.waiting and not shared.turn.wait(SECONDS):
                    raise TimeoutError("nobody sends")
            shared.waiting.discard(self.index)


class LateTransport:
    """One of two members; what it receives is there, and what it sends is over, once it has waited."""

    index, size, any_thread, timeout, interrupted = 0, 2, True, SECONDS, False
    names = (0, 1)

    def __init__(self) -> None:
        self._begun: list[Late] = []

    def send(self, peer: int, memory: np.ndarray) -> Late:
        return self._begin(memory)

    def receive(self, peer: int, memory: np.ndarray) -> Late:
        return self._begin(memory)

    def wait(self, pending: Sequence[Any]) -> float:
        for message in pending:
            message.memory.fill_(7)
            message.over = True
        return 0.0

    @property
    def all_over(self) -> bool:
        return all(message.over for message in self._begun)

    def _begin(self, memory: np.ndarray) -> Late:
        self._begun.append(Late(torch.from_numpy(memory)))
        return self._begun[-1]


def summed(
    ring: Callable[..., Any], blocks: list[range], vectors: list[Tensor], seed: int
) -> list[Tensor | BaseException]:
    """Return what each member of a ring has, which then writes over its vectors, or what it raised."""
    links = Lateness(len(blocks), seed).links
    results: list[Tensor | BaseException] = [torch.empty(0)] * len(blocks)

    def member(index: int) -> None:
        try:
            own = [vectors[rank].clone() for rank in blocks[index]]
            results[index] = ring(blocks, index, links[index]).sum(own).clone()
            if not all(message.awaited for message in links[index].begun):
                raise RuntimeError("a message was not waited for")
            for vector in own:
                vector.fill_(float("inf"))
        except BaseException as error:
            results[index] = error
        links[index].leave()

    threads = [threading.Thread(target=member, args=(index,), daemon=True) for index in range(len(blocks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
