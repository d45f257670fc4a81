"""The stand-ins under the names of the programs."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAMS = ("bsub", "jsrun", "qsub", "mpiexec", "flux", "srun", "scontrol")


def lay_out(folder: Path) -> None:
    """Put them there, to be found on PATH."""
    folder.mkdir()
    text = Path(__file__).with_name("stand_ins.py").read_text()
    for name in PROGRAMS:
        program = folder / name
        program.write_text(f"#!{sys.executable} -S\n{text}")
        program.chmod(0o755)
