"""The sums of one step, taken while its backward pass goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from types import TracebackType

from torch import Tensor

from trainers.reduce.ordered_reduce import Reducer

_Task = tuple[Sequence[Tensor], Callable[[], None]]


class Reduction:
    """One step's sums, bucket by bucket in the order of `start`, which is the same on all members.

    They are taken in a thread of their own if `beside`, else inside `start`, as are those of vectors on a device: there
    the host only says what to add. The thread lives for one step and sleeps while it waits. As a context, it ends the
    thread when an error leaves it.
    """

    def __init__(self, reducer: Reducer, beside: bool) -> None:
        self._reducer = reducer
        self._sums: list[Tensor] = []
        self._seconds = 0.0
        self._error: BaseException | None = None
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._beside = beside
        self._thread: Thread | None = None

    def start(self, vectors: Sequence[Tensor], ready: Callable[[], None] = lambda: None) -> None:
        """Begin the sum of a bucket's vectors, once `ready()` has returned (see `Reducer.sum`)."""
        if not self._beside or vectors[0].device.type != "cpu":
            ready()
            self._sums.append(self._reducer.sum(vectors))
            return
        if self._thread is None:
            self._thread = Thread(target=self._run, name="reduction", daemon=True)
            self._thread.start()
        self._tasks.put((vectors, ready))

    def begun(self) -> list[Tensor]:
        """Return the sums, all of which have been begun; those on a device are there once `finish` has returned."""
        begin = time.perf_counter()
        self._stop()
        if self._error is not None:
            raise self._error
        self._seconds += time.perf_counter() - begin
        return self._sums

    def finish(self) -> tuple[list[Tensor], float]:
        """Return the sums, and the seconds that it took them to be ready."""
        sums, begin = self.begun(), time.perf_counter()
        self._reducer.complete()
        return sums, self._seconds + time.perf_counter() - begin

    def __enter__(self) -> Reduction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and self._thread is not None and self._thread.is_alive():
            self._reducer.interrupt()
            self._stop()

    def _stop(self) -> None:
        """Let the thread end; all its waits are bounded."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()

    def _run(self) -> None:
        try:
            while task := self._tasks.get():
                vectors, ready = task
                ready()
                self._sums.append(self._reducer.sum(vectors))
        except BaseException as error:  # told by `finish`, in the thread of the step
            self._error = error
