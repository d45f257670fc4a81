"""Finding the service of a name, or starting it."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from select import POLLIN, poll
from typing import Any, BinaryIO

from preprocess.dataset import Dataset
from preprocess.errors import ServiceError, SpecError
from preprocess.sharing.messages import Channel
from preprocess.sharing.place import ServicePlace
from preprocess.sharing.service import Service
from preprocess.sharing.settings import ServiceSettings

__all__ = ["find_or_start", "serve"]


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
        ready: descriptor to which one line of JSON is written once loaders may come, or what is wrong.
    """
    try:
        if dataset is None:
            assert settings.data is not None
            dataset = Dataset(settings.data)
        service = Service(place, settings, dataset, place.listen())
    except Exception as cause:
        told = str(cause) if isinstance(cause, SpecError) else f"{type(cause).__name__}: {cause}"
        _say(ready, {"error": told})
        traceback.print_exc()
        return
    _say(ready, {"ready": True})
    service.run()


def _start(place: ServicePlace, settings: ServiceSettings, dataset: Dataset | None, lock: int, timeout: float) -> None:
    """Start a service and wait until it says that it is ready."""
    reading, writing = os.pipe()
    try:
        if dataset is None:
            _detach(lambda: _execute(place, settings, writing))
        else:
            _detach(lambda: _serve_copy(place, settings, dataset, (reading, lock), writing))
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = _read_line(stream, timeout)
    if answer is None:
        raise ServiceError(f"the service of {place.name!r} was not ready within {timeout:g} s; see {place.log}")
    if "error" in answer:
        raise ServiceError(f"the service of {place.name!r} could not start: {answer['error']}")


def _detach(run: Callable[[], None]) -> None:
    """Run something in a process that is not this one's child and has no terminal."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if not os.fork():
            run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _execute(place: ServicePlace, settings: ServiceSettings, ready: int) -> None:
    """Become a service in a Python of its own, which reads its settings from a pipe."""
    reading, writing = os.pipe()
    os.write(writing, settings.to_json().encode() + b"\n")
    os.close(writing)
    log = _open_log(place)
    for descriptor, stream in ((reading, 0), (ready, 1), (log, 2)):
        os.dup2(descriptor, stream)
    os.execv(sys.executable, [sys.executable, "-m", "preprocess.sharing", place.name])


def _serve_copy(
    place: ServicePlace, settings: ServiceSettings, dataset: Dataset, of_the_parent: Iterable[int], ready: int
) -> None:
    """Become a service in this copy of a process that has opened the data set."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in of_the_parent:
        os.close(descriptor)
    log = _open_log(place)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stream in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, stream)
    serve(place, settings, dataset, ready)


def _open_log(place: ServicePlace) -> int:
    return os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def _say(descriptor: int, answer: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(answer).encode() + b"\n")
    os.close(descriptor)


def _read_line(stream: BinaryIO, timeout: float) -> dict[str, Any] | None:
    """Return what was said, or None if nothing was within so many seconds."""
    waiting = poll()
    waiting.register(stream, POLLIN)
    line = stream.readline() if waiting.poll(timeout * 1000) else b""
    return json.loads(line) if line else None
