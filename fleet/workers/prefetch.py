"""The next item of a feed, fetched while the present one is trained on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import nullcontext
from typing import Any

import torch

from trainers.device.own_device import select, with_index


class TimedOut(TimeoutError):
    """The next item was not there in time."""


class ReadAhead:
    """Fetches one item ahead, in a thread; for a GPU with copies on a stream of their own, beside the computation.

    Args:
        items: endless; the first is asked for at once, in the thread.
        tensors: gives the tensors that an item holds.
        device: where they are wanted.
        closed: set when nobody wants more: the items end their waits then.
    """

    def __init__(
        self,
        items: Iterator[Any],
        tensors: Callable[[Any], Iterable[torch.Tensor]],
        device: torch.device,
        closed: threading.Event,
    ) -> None:
        self._items, self._tensors, self._device, self._closed = items, tensors, with_index(device), closed
        self._module: Any = torch.get_device_module(device)
        self._stream = None if device.type == "cpu" else self._module.Stream(device=self._device)
        self._executor = ThreadPoolExecutor(1, "feed", select, (self._device,))
        self._next: Future[tuple[Any, Any]] = self._executor.submit(self._fetch)

    def next(self, timeout: float) -> Any:
        """Return the next item, and begin with the one after it.

        Raises:
            TimedOut: it did not come within so many seconds.
            Exception: whatever fetching it raised.
        """
        try:
            item, copied = self._next.result(timeout)
        except FutureTimeout:
            if self._next.done():  # the fetching itself ran into a time-out
                raise
            raise TimedOut from None
        if copied is not None:
            stream = self._module.current_stream(self._device)
            stream.wait_event(copied)
            for tensor in self._tensors(item):  # their memory is not to be used anew before this stream is through
                if tensor.device == self._device:
                    tensor.record_stream(stream)
        self._next = self._executor.submit(self._fetch)
        return item

    def close(self) -> None:
        """Wait for the end of the fetch under way; `closed` is set."""
        assert self._closed.is_set()
        self._executor.shutdown(wait=True)

    def _fetch(self) -> tuple[Any, Any]:
        """The next item, and the event after which its tensors are there."""
        with nullcontext() if self._stream is None else self._module.stream(self._stream):
            item = next(self._items)
            return item, None if self._stream is None else self._stream.record_event()
