"""Finding the service of a name, or starting it."""

from __future__ import annotations

import json
import os
import traceback
from select import POLLIN, poll
from typing import Any, BinaryIO

from preprocess.making.dataset import Dataset
from preprocess.samples.errors import DataSpecError, ServiceError
from preprocess.sharing.launch import COPY_ADVICE, end_launched, execute, fork
from preprocess.sharing.messages import Channel
from preprocess.sharing.place import ServicePlace
from preprocess.sharing.service import Service
from preprocess.sharing.settings import ServiceSettings

#: In which a copy is ready: the data set is open, there is only memory to allocate.
_COPY_SECONDS = 60.0


def find_or_start(place: ServicePlace, settings: ServiceSettings, dataset: Dataset | None, timeout: float) -> Channel:
    """Return a channel to the service, which is started if none runs.

    Args:
        place: where it is.
        settings: what it is started with.
        dataset: an opened data set to hand over to a new service, if settings name none.
        timeout: seconds that the start may take.

    Raises:
        ServiceError: it did not start; the text says why, or where its log is.
    """
    with place.lock(timeout) as lock:
        connection = place.connect()
        if connection is None:
            _start(place, settings, dataset, lock, timeout)
            connection = place.connect()
    if connection is None:
        raise ServiceError(f"the service of {place.name!r} ended as soon as it had started; see {place.log}")
    return Channel(connection)


def serve(place: ServicePlace, settings: ServiceSettings, dataset: Dataset | None, ready: int) -> None:
    """Be the service of a place whose lock the caller's parent holds, until no loader needs it.

    Args:
        place: where loaders will look.
        settings: what to serve.
        dataset: the opened data set, if settings name none.
        ready: descriptor to which one line of JSON is written once loaders may come, or why they may not.
    """
    try:
        if dataset is None:
            assert settings.data is not None
            dataset = Dataset(settings.data)
        service = Service(place, settings, dataset, place.listen())
    except Exception as cause:
        told = str(cause) if isinstance(cause, DataSpecError) else f"{type(cause).__name__}: {cause}"
        _say(ready, {"error": told})
        traceback.print_exc()
        return
    _say(ready, {"ready": True})
    service.run()


def _start(place: ServicePlace, settings: ServiceSettings, dataset: Dataset | None, lock: int, timeout: float) -> None:
    """Start a service and wait until it says that it is ready; one that does not is killed."""
    seconds = timeout if dataset is None else min(timeout, _COPY_SECONDS)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        try:
            if dataset is None:
                first = execute(place, settings, writing)
            else:
                first = fork(place, lambda: serve(place, settings, dataset, writing), (reading, lock))
        finally:
            os.close(writing)
        answer = _answer(stream, first, seconds)
    if answer is None:
        advice = "" if dataset is None else f"; {COPY_ADVICE}"
        raise ServiceError(f"the service of {place.name!r} was not ready within {seconds:g} s{advice}; see {place.log}")
    if not answer:
        raise ServiceError(f"the service of {place.name!r} ended before it was ready; see {place.log}")
    if "error" in answer:
        raise ServiceError(f"the service of {place.name!r} could not start: {answer['error']}")


def _answer(stream: BinaryIO, first: int, timeout: float) -> dict[str, Any] | None:
    """Return what a service says, and see its first process off; kill all of it if it says nothing in time."""
    answer = None
    try:
        answer = _read_line(stream, timeout)
    finally:
        if answer is None:
            end_launched(first)
        os.waitpid(first, 0)
    return answer


def _say(descriptor: int, answer: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(answer).encode() + b"\n")
    os.close(descriptor)


def _read_line(stream: BinaryIO, timeout: float) -> dict[str, Any] | None:
    """Return the other side's words, nothing if it has gone, or None if it was silent for so many seconds."""
    waiting = poll()
    waiting.register(stream, POLLIN)
    if not waiting.poll(timeout * 1000):
        return None
    line = stream.readline()
    return json.loads(line) if line else {}
