"""`fleet.run`: the command `fleet run`, from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.journal.whole_files import strict_json
from fleet.session.from_python.attached import Run
from fleet.session.from_python.process import Process
from preprocess.files.modules import python
from preprocess.files.writing import make_folder, write_whole

if TYPE_CHECKING:
    from fleet.spec import EnsembleSpec

GIVEN = "given.yaml"
"""In the run directory: the spec that a program gave as values."""


def run(
    spec: str | PathLike[str] | Mapping[str, Any] | EnsembleSpec,
    out: str | PathLike[str] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    options: tuple[str, ...] = (),
    wait: bool = True,
) -> Run:
    """Train an ensemble, or go on with it, as the command `fleet run` does: in processes of its own.

    Args:
        spec: a YAML file, the values of one, or a spec that `fleet.spec` made; modules and relative paths of values are
            looked for in the current folder.
        out: the run directory; None: runs/NAME.
        settings: dotted path of a key of the spec -> another value, as with `--set`.
        options: further options of the command, such as ("--trainers", "2").
        wait: whether to come back at the end of the run only. Its output is shown meanwhile; an interrupt stops it in
            good order, and is raised again.

    Returns:
        the run; `status` tells how it ended: done, failed or stopped.

    Raises:
        SpecError: the spec is wrong; with all that is wrong.
        RunError: anything else that a person can mend.
        RunLost: it ended before it could say how.
    """
    from fleet.spec import EnsembleSpec, load

    changes = [f"{path}={json.dumps(value)}" for path, value in (settings or {}).items()]
    if isinstance(spec, Mapping):
        read = EnsembleSpec.from_mapping(spec, changes, Path.cwd())
    elif isinstance(spec, EnsembleSpec):
        read = spec
    else:
        read = load(spec, changes)
    directory = Path(out) if out is not None else Path("runs") / read.name
    words = [*_words(spec, directory), "--out", str(directory), *options]
    for change in changes:
        words += ["--set", change]
    running = Run(directory, Process.start(python("-m", "fleet", "run", *words)))
    if wait:
        running.wait()
    return running


def _words(spec: str | PathLike[str] | Mapping[str, Any] | EnsembleSpec, directory: Path) -> list[str]:
    """The words that name the spec's file; values are written into the run directory."""
    if isinstance(spec, (str, PathLike)):
        return [str(spec)]
    values, folder = (spec, Path.cwd()) if isinstance(spec, Mapping) else (spec.to_mapping(), spec.folder)
    make_folder(directory)
    write_whole(directory / GIVEN, strict_json(values, indent=1) + "\n")
    return [str(directory / GIVEN), "--folder", str(folder)]
