"""TensorBoard's files, written without the thread of its own writer: that dies of a full disk, with a traceback."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from preprocess.files.writing import make_folder, new_file

_VERSION = "brain.Event:2"
_NUMBERS = count()


def tag_of(name: str) -> str:
    """What TensorBoard calls a value of that name."""
    return re.sub(r"[^-/\w.]", "_", name).lstrip("/")


class EventFile:
    """The values of one job since it was started.

    Args:
        folder: the job's; made if there is none.
        purge: the step from which on values of earlier files do not count.

    Raises:
        ImportError: there is no tensorboard.
        OSError: it cannot be written.
    """

    def __init__(self, folder: Path, purge: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        make_folder(folder)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
        self._records = RecordWriter(os.fdopen(new_file(folder / name), "wb"))
        self._put(Event(wall_time=now, file_version=_VERSION))
        self._put(Event(step=purge, file_version=_VERSION))
        self._put(Event(step=purge, session_log=SessionLog(status=SessionLog.START)))

    def put(self, values: Mapping[str, float], step: int, unix: float) -> None:
        """Write the values of a step, at once. OSError if they cannot be."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for name, value in values.items():
            summary = Summary(value=[Summary.Value(tag=tag_of(name), simple_value=value)])
            self._put(Event(wall_time=unix, step=step, summary=summary))
        self._records.flush()

    def tell(self, summary: object, unix: float) -> None:
        """Write a summary that belongs to no step, at once. OSError if it cannot be."""
        from tensorboard.compat.proto.event_pb2 import Event

        self._put(Event(wall_time=unix, summary=summary))  # type: ignore[arg-type]
        self._records.flush()

    def close(self) -> None:
        """Write no more."""
        self._records.close()

    def _put(self, event: object) -> None:
        self._records.write(event.SerializeToString())  # type: ignore[attr-defined]
