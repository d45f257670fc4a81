"""extended.json: jobs that train longer than the spec of the run's first start says, since `fleet extend` asked for it.

Every later start of the run takes the jobs' longer `stop` from here, so its spec can stay as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from preprocess.files.reading import read_json
from preprocess.files.writing import write_whole

NAME = "extended.json"


@dataclass(frozen=True)
class Extension:
    """A job's longer training.

    Attributes:
        epochs: after so many epochs it is done.
        only_epochs: its target and its patience count no more.
        before: its `stop` in the spec of the run's first start, all keys written out.
    """

    epochs: int
    only_epochs: bool
    before: Mapping[str, Any]

    @property
    def stop(self) -> dict[str, Any]:
        """The job's `stop` from now on."""
        less: dict[str, Any] = {"target": {}, "patience": None} if self.only_epochs else {}
        return {**self.before, **less, "epochs": self.epochs}

    def of(self, stop: Mapping[str, Any]) -> dict[str, Any]:
        """The `stop` that counts where a spec says this one: what neither the run had nor has is left to be refused."""
        return self.stop if dict(stop) == dict(self.before) else dict(stop)


def read_extensions(directory: Path) -> dict[str, Extension]:
    """Return the extensions of a run's jobs, by job.

    Raises:
        OSError: the file is there and cannot be read.
        ValueError: it is damaged.
    """
    try:
        content = read_json(directory / NAME)
    except (FileNotFoundError, NotADirectoryError):  # a directory that cannot be is told where it is made
        return {}
    try:
        return {job: Extension(**told) for job, told in content["jobs"].items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{directory / NAME} is damaged ({error}); take it away, and extend the jobs again") from error


def write_extensions(directory: Path, extensions: Mapping[str, Extension]) -> None:
    """Replace the directory's file."""
    content = {"jobs": {job: asdict(extension) for job, extension in extensions.items()}}
    write_whole(directory / NAME, json.dumps(content, indent=1))
