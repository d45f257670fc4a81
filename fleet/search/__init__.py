"""A search of good networks, decided in virtual time: the same on any number of devices.

    search = Search(Halving([1, 3, 9], eta=3), Random(over, seed=0), lambda trial, values: 1, width=8, trials=60)
    while not search.is_over:
        segment = search.needed()[0]               # or any other, or one of search.ahead()
        search.tell(segment.trial, segment.end, value_of(search.values(segment.trial), segment.end))
    search.best(), search.digest()

Pure: no MPI, torch, clock, files or global randomness.
"""

from __future__ import annotations

from fleet.search.decisions import OWN_TRIALS, Change, Copy, Decision, Kind, Outcome, Record, Segment, Status
from fleet.search.samplers import Sampler
from fleet.search.stopping_rule import SpeculativeRule, StoppingRule
from fleet.search.virtual_time import Costs, Search

__all__ = [
    "Change",
    "Copy",
    "Costs",
    "Decision",
    "Kind",
    "OWN_TRIALS",
    "Outcome",
    "Record",
    "Sampler",
    "Search",
    "Segment",
    "SpeculativeRule",
    "Status",
    "StoppingRule",
]
