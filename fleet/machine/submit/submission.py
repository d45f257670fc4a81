"""Hands a script to its scheduler."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from preprocess.files.reading import read_text

PROGRAMS = {"slurm": "sbatch", "lsf": "bsub", "pbs": "qsub", "flux": "flux"}
_ARGUMENTS = {"slurm": ["--parsable"], "lsf": [], "pbs": [], "flux": ["batch"]}
_SAID = {
    "slurm": re.compile(r"^(\d+)(?:;\S+)?$", re.M),
    "lsf": re.compile(r"Job <(\d+)> is submitted"),
    "pbs": re.compile(r"^(\d+(?:\[\])?\.\S+)$", re.M),
    "flux": re.compile(r"^([ƒf]\S+)$", re.M),
}
_PATIENCE_SECONDS = 120.0


class SubmissionError(RuntimeError):
    """The scheduler did not take the script; the text says what it said."""


def submit(scheduler: str, script: Path) -> str:
    """Submit a script; return the job's id.

    Raises:
        SubmissionError: the program is not here, refuses, or says something else than an id.
    """
    program = shutil.which(PROGRAMS[scheduler])
    if program is None:
        raise SubmissionError(
            f"there is no {PROGRAMS[scheduler]} here; call this on a login node of the site, or print the script "
            "with --dry-run"
        )
    command = [program, *_ARGUMENTS[scheduler]]
    from_input = scheduler == "lsf"  # bsub reads directives from its input alone
    try:
        done = subprocess.run(
            command if from_input else [*command, str(script)],
            input=read_text(script) if from_input else None,
            capture_output=True, text=True, timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SubmissionError(f"{PROGRAMS[scheduler]} has not answered for {_PATIENCE_SECONDS:.0f} s") from None
    found = _SAID[scheduler].search(done.stdout)
    if done.returncode != 0 or found is None:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        raise SubmissionError(
            f"{PROGRAMS[scheduler]} refused {script} (exit code {done.returncode}): {' / '.join(said)}"
        )
    return found.group(1)
