"""One process that fuzzes targets: `python -m tests.faults.fuzz.engines FOLDER SECONDS EXAMPLES TARGET ...`.

So many examples of each; or for so long one target, with Atheris where that is installed.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis import target as aim

from tests.faults.fuzz.attempts import Attempts, bound_memory, folder_of, free_memory
from tests.faults.fuzz.targets import CUTS, PIECES, drawn_edits, edited, target_named

BATCH = 200  # examples that Hypothesis makes of one seed
GUIDED = ("fleet", "preprocess", "trainers")


def main(folder: Path, seconds: float, examples: int, *names: str) -> None:
    """Fuzz each target for so long, or with so many examples."""
    if find_spec("atheris") and not examples:
        return _guided(names[0], folder_of(folder, names[0]), seconds)
    for name in names:
        _drawn(name, folder_of(folder, name), seconds, examples)
    return None


def _drawn(name: str, folder: Path, seconds: float, examples: int) -> None:
    """Hypothesis edits the corpus."""
    attempts, corpus = _begun(name, folder)
    for content in corpus:
        attempts.one(content)
    bound_memory()
    until, number, given = time.monotonic() + seconds, 0, attempts.tally.examples
    while (attempts.tally.examples - given < examples) if examples else (time.monotonic() < until):
        number += 1
        _batch(attempts, corpus, number, min(BATCH, examples) if examples else BATCH)
    attempts.note()


def _batch(attempts: Attempts, corpus: Sequence[bytes], number: int, count: int) -> None:
    edit = st.tuples(st.integers(0, 1 << 20), st.sampled_from(CUTS), st.sampled_from((b"", *PIECES)))
    edits = st.lists(edit, min_size=1, max_size=3)

    @seed(number)
    @settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.sampled_from(corpus), edits | st.binary(max_size=40).map(lambda piece: [(0, 1 << 30, piece)]))
    def attempted(content: bytes, changes: list[tuple[int, int, bytes]]) -> None:
        outcome = attempts.one(edited(content, changes))
        aim(float(len(repr(outcome)[:100_000])), label="length of the outcome")

    attempted()


def _begun(name: str, folder: Path) -> tuple[Attempts, Sequence[bytes]]:
    """The attempts, and the corpus, on a target: it takes every example of that."""
    free_memory()  # Arrow's allocator, for one, reserves more than an example may take
    found = target_named(name)
    with tempfile.TemporaryDirectory() as made:
        corpus = list(found.corpus(Path(made)))
    assert corpus
    return Attempts(found, folder), corpus


def _guided(name: str, folder: Path, seconds: float) -> None:
    """Atheris edits what reached something new; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=list(GUIDED)):
        attempts, corpus = _begun(name, folder)
    (folder / "corpus").mkdir(exist_ok=True)
    for number, content in enumerate(corpus):
        attempts.one(content)
        (folder / "corpus" / f"{number}").write_bytes(content)
    until = time.monotonic() + seconds

    def attempted(content: bytes) -> None:
        attempts.one(content)
        if time.monotonic() > until:
            attempts.note()
            sys.stdout.flush()
            os._exit(0)

    def changed(content: bytes, most: int, number: int) -> bytes:
        draw = random.Random(number)
        if draw.random() < 0.3:
            return bytes(atheris.Mutate(content, most))[:most]
        return edited(content or draw.choice(corpus), drawn_edits(draw))[:most]

    longest = 2 * max(map(len, corpus)) + 4096
    options = [f"-max_len={longest}", "-timeout=0", "-rss_limit_mb=0", "-verbosity=0", "-seed=1"]
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], attempted, custom_mutator=changed)
    bound_memory()
    atheris.Fuzz()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
