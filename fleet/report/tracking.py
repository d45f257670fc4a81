"""Metrics for other tools: metrics.csv, and TensorBoard files for each job."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleet.report.event_file import EventFile
from fleet.report.metrics_file import MetricsFile

_LEAVING = ("stopped", "paused", "done", "failed")


class Tracking:
    """Takes journal events and writes run_dir/metrics.csv and run_dir/tensorboard/<job>/.

    Going on with a run adds no row twice: the later (job, epoch) replaces the earlier, in TensorBoard by its purge
    step. Without the tensorboard package only metrics.csv is written, and a warning says so. A file that cannot be
    written ends no run: a warning says so, and the next epoch tries again.
    """

    def __init__(self, run_dir: Path, tensorboard: bool = True) -> None:
        self._run_dir = Path(run_dir)
        self._file = MetricsFile(self._run_dir / "metrics.csv")
        self._tensorboard = tensorboard
        self._writers: dict[str, EventFile] = {}
        self._steps: dict[str, int] = {}

    def event(self, event: Mapping[str, Any]) -> None:
        """Take one journal event."""
        kind, job = event.get("event"), str(event.get("job", ""))
        if kind == "started":
            self._steps[job] = int(event.get("step") or 0)
        elif kind == "epoch":
            for write in (self._row, self._scalars):
                try:
                    write(event, job)
                except OSError as error:
                    self._warn(error, job)
        elif kind in _LEAVING:
            self._leave(job)

    def close(self) -> None:
        """Close the TensorBoard files; a second call does nothing."""
        for job in list(self._writers):
            self._leave(job)

    def _leave(self, job: str) -> None:
        if job in self._writers:
            with suppress(OSError):  # each epoch's values were written at once
                self._writers.pop(job).close()

    def _warn(self, error: OSError, job: str) -> None:
        self._leave(job)
        what = f"{error.filename or 'metrics for other tools'} cannot be written: {error.strerror}"
        warnings.warn(f"{what}; the journal has the metrics, and the run goes on", stacklevel=2)

    def _row(self, event: Mapping[str, Any], job: str) -> None:
        row = {key: str(event.get(key, "")) for key in ("epoch", "step", "rate")}
        row |= {"job": job, "time": str(event.get("t", "")), "devices": " ".join(map(str, event.get("devices", ())))}
        self._file.put(row, {name: str(value) for name, value in (event.get("metrics") or {}).items()})

    def _scalars(self, event: Mapping[str, Any], job: str) -> None:
        writer = self._writer(job)
        if writer is None:
            return
        values = {
            **(event.get("metrics") or {}),
            "rate": event.get("rate"),
            "learning_rate": event.get("learning_rate"),
        }
        step, unix = int(event.get("step") or 0), float(event.get("unix") or 0.0)
        writer.put({name: float(value) for name, value in values.items() if value is not None}, step, unix)

    def _writer(self, job: str) -> EventFile | None:
        if self._tensorboard and job not in self._writers:
            directory = self._run_dir / "tensorboard" / folder_of(job)
            try:
                # What an earlier session wrote past the step from which this one goes on is trained again: hide it.
                self._writers[job] = EventFile(directory, self._steps.get(job, 0) + 1)
            except ImportError:
                self._tensorboard = False
                warnings.warn("no TensorBoard files are written: pip install tensorboard", stacklevel=2)
        return self._writers.get(job)


def folder_of(job: str) -> str:
    """A job's name as the name of one folder: a slash or a leading dot cannot lead out of the run's directory."""
    name = quote(job, safe=" ()[]=,+@") or "%"
    return f"%2E{name[1:]}" if name.startswith(".") else name
