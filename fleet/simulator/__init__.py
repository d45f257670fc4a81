"""Runs a policy over a predicted machine: the coordinator of live runs, with another clock and another executor."""

from fleet.simulator.executor import SimulatedClock, SimulatedExecutor, SimulatedJob
from fleet.simulator.predict import Prediction, predict

__all__ = ["Prediction", "SimulatedClock", "SimulatedExecutor", "SimulatedJob", "predict"]
