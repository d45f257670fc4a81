"""Metrics for other tools: metrics.csv, and TensorBoard files for each job."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleet.report.metrics_file import MetricsFile

_LEAVING = ("stopped", "done", "failed")


class Tracking:
    """Takes journal events and writes run_dir/metrics.csv and run_dir/tensorboard/<job>/.

    Going on with a run adds no row twice: the later (job, epoch) replaces the earlier, in TensorBoard by its purge
    step. Without the tensorboard package only metrics.csv is written, and a warning says so.
    """

    def __init__(self, run_dir: Path, tensorboard: bool = True) -> None:
        self._run_dir = Path(run_dir)
        self._file = MetricsFile(self._run_dir / "metrics.csv")
        self._tensorboard = tensorboard
        self._writers: dict[str, Any] = {}
        self._steps: dict[str, int] = {}

    def event(self, event: Mapping[str, Any]) -> None:
        """Take one journal event."""
        kind, job = event.get("event"), str(event.get("job", ""))
        if kind == "started":
            self._steps[job] = int(event.get("step") or 0)
        elif kind == "epoch":
            self._row(event, job)
            self._scalars(event, job)
        elif kind in _LEAVING and job in self._writers:
            self._writers.pop(job).close()

    def close(self) -> None:
        """Close the TensorBoard files; a second call does nothing."""
        while self._writers:
            self._writers.popitem()[1].close()

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
        for name, value in values.items():
            if value is not None:
                writer.add_scalar(name, float(value), int(event.get("step") or 0), walltime=event.get("unix"))
        writer.flush()

    def _writer(self, job: str) -> Any:
        if self._tensorboard and job not in self._writers:
            try:
                from torch.utils.tensorboard import SummaryWriter  # seconds to import, and only epochs need it
            except ImportError:
                self._tensorboard = False
                warnings.warn("no TensorBoard files are written: pip install tensorboard", stacklevel=2)
                return None
            directory = self._run_dir / "tensorboard" / folder_of(job)
            # What an earlier session wrote past the step from which this one goes on is trained again: hide it.
            self._writers[job] = SummaryWriter(str(directory), purge_step=self._steps.get(job, 0) + 1)
        return self._writers.get(job)


def folder_of(job: str) -> str:
    """A job's name as the name of one folder: a slash or a leading dot cannot lead out of the run's directory."""
    name = quote(job, safe=" ()[]=,+@") or "%"
    return f"%2E{name[1:]}" if name.startswith(".") else name
