"""From what is asked of a run's networks to their figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fleet.harvest.load import load_members
from fleet.harvest.members import read_members
from fleet.harvest.predictions import BATCH, check_classes, predict
from fleet.harvest.vote import Verdict, greedy_picks
from fleet.run.held_out import held_out_of
from fleet.run.predict.asked import Asked
from fleet.spec import importable


def told_of(directory: Path, asked: Asked) -> dict[str, Any]:
    """Let networks of a run directory predict, write what is to be written, and return the figures as plain values.

    Raises:
        HarvestError, SpecError, ReferenceProblem, CheckpointError: the run cannot give what is asked.
        SourceError, TransformError, SampleError, CorruptLimitError: the samples cannot be made.
    """
    begin = time.perf_counter()
    verdict = _verdict(directory, asked)
    if asked.out is not None:
        verdict.predictions.write(asked.out, verdict.together(asked.vote), verdict.weights)
    return {
        "members": {name: figures.to_json() for name, figures in verdict.members().items()},
        "ensemble": verdict.ensemble(asked.vote),
        "weights": dict(zip(verdict.predictions.names, verdict.weights.tolist())),
        "vote": asked.vote,
        **verdict.samples_told(),
        "seconds": time.perf_counter() - begin,
    }


def _verdict(directory: Path, asked: Asked) -> Verdict:
    """Read the networks, let them predict, and choose among them where that is asked."""
    picks = greedy_picks(asked.members)
    found = read_members(directory)
    chosen = found.chosen("all" if picks is not None else asked.members)
    jobs = [member.job for member in chosen]
    check_classes(jobs)
    samples = held_out_of(found.spec, jobs, asked.data)
    ensemble = load_members(found, chosen, asked.checkpoint, asked.device)
    with importable([found.spec.folder, Path.cwd()]), threads(found.spec.resources.threads):
        predictions = predict(ensemble, samples.batches(BATCH), asked.device)
    return Verdict.of_all(predictions) if picks is None else Verdict.greedy(predictions, picks)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads, as ranks of a run do: by their number sums of floats may be rounded."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
