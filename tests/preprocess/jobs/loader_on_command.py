"""A process with a SharedLoader that does what it is told on standard input, one line a command, one line an answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from pydantic import TypeAdapter

from preprocess import Part, SharedLoader


def digest(batch: Any) -> str:
    """Name the bytes of a batch, or of a tuple of batches."""
    parts = [part for pair in (batch if isinstance(batch[0], tuple) else (batch,)) for part in pair]
    return sha256(b"|".join(part.numpy().tobytes() for part in parts)).hexdigest()


def main() -> None:
    """Obey until the end of the input."""
    arguments = json.loads(sys.argv[1])
    part = TypeAdapter(Part).validate_python(arguments.pop("part")) if "part" in arguments else None
    loader = SharedLoader(**arguments, part=part)
    batches: Iterator[Any] = iter(())
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "iterate":
            batches = iter(loader)
            answer: Any = loader.epoch
        elif command == "next":
            batch = next(batches, None)
            answer = None if batch is None else digest(batch)
        elif command == "rest":
            answer = [digest(batch) for batch in batches]
        elif command == "epoch":
            answer = [digest(batch) for batch in loader]
        elif command == "sharers":
            answer = loader.sharers
        elif command == "state":
            answer = loader.state_dict()
        elif command == "load":
            loader.load_state_dict(json.loads("".join(rest)))
            answer = None
        else:
            raise ValueError(command)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
