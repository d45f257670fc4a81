"""Traces of jobs: read in the formats that schedulers' papers use, made at random, and written in fleet's own."""

from fleet.simulator.traces.formats import write_trace
from fleet.simulator.traces.reading import FORMATS, read_trace
from fleet.simulator.traces.synthetic import Synthetic, synthetic_trace, with_models
from fleet.simulator.traces.table import TraceError, TraceProblem
from fleet.simulator.traces.trace import JobColumns, Trace, TraceJob

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
