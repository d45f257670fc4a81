"""The process in which a script is watched: `python -m fleet.spec.from_script.child OUT PARTS SCRIPT OPTIONS...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fleet.spec.from_script.found import Found
from fleet.spec.from_script.reading import read_script
from fleet.spec.from_script.script import Script, ScriptFailed
from preprocess.files.writing import write_whole


def main(out: str, parts: str, target: str, *options: str) -> None:
    """Read a script (a path that ends in .py, or a module's name), and write what was found to `out`."""
    # Where Python looks first for the modules of a script that a person runs.
    sys.path.insert(0, str(Path(target).resolve().parent) if target.endswith(".py") else os.getcwd())
    try:
        script = Script(Path(target).resolve(), Path(target).stem) if target.endswith(".py") else Script.named(target)
        found = read_script(script, options, parts)
    except ScriptFailed as problem:
        found = Found(problems=(str(problem),))
    write_whole(out, found.to_text())
    sys.stdout.flush()
    os._exit(0)  # whatever threads and processes the script has left


if __name__ == "__main__":
    main(*sys.argv[1:])
