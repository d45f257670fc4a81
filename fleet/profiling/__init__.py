"""Offline profiling: how fast each job trains on how many devices, and how fast samples can be made."""

from fleet.profiling.plan import Measurement, first_pass, second_pass
from fleet.profiling.store import ProfileError, RateProfile

__all__ = ["Measurement", "RateProfile", "ProfileError", "first_pass", "second_pass"]
