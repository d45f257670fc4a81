"""Traces of jobs: read in the formats that schedulers' papers use, made at random, and written in fleet's own."""

from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.job import TraceJob
from fleet.simulator.traces.models import with_models
from fleet.simulator.traces.native import write_trace
from fleet.simulator.traces.problem import TraceError, TraceProblem
from fleet.simulator.traces.reading import FORMATS, read_trace
from fleet.simulator.traces.synthetic import Synthetic, synthetic_trace
from fleet.simulator.traces.trace import Trace

__all__ = [
    "FORMATS",
    "JobColumns",
    "Synthetic",
    "Trace",
    "TraceError",
    "TraceJob",
    "TraceProblem",
    "read_trace",
    "synthetic_trace",
    "with_models",
    "write_trace",
]
