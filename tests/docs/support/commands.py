"""Runs the marked blocks of a page in a folder, as a reader would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.docs.support.pages import Block, Page, page
from tests.warm.starting import python_path

LIMIT_SECONDS = 240
STOPPED = 75


def reader_environment() -> dict[str, str]:
    """This environment with fleet on the path, and without what a launcher may have set."""
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "PMI_", "FLEET_"))}
    return {
        **mine,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{mine.get('PATH', '')}",
        "PYTHONPATH": python_path(),
        "FLEET_WARM": os.environ.get("FLEET_WARM", ""),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # mpiexec of Open MPI refuses root otherwise, and tests may run as root
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def write_files(source: Page, folder: Path, instead: Mapping[str, str] | None = None) -> None:
    """Save the page's files in the folder.

    instead: what is written in place of words that stand in them.
    """
    texts = {block.words[0]: block.text for block in source.blocks if block.kind == "file"}
    for words, others in (instead or {}).items():
        assert any(words in text for text in texts.values()), f"no file of {source.name} has {words!r}"
        texts = {name: text.replace(words, others) for name, text in texts.items()}
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def follow(name: str, folder: Path, with_tutorial: bool = True, instead: Mapping[str, str] | None = None) -> int:
    """Save the tutorial's files and the page's, then run the page's blocks in order.

    A mark that ends with `exit N` expects that exit code of the block's last command; one that ends with `interrupt`
    gets ctrl-C after the first epoch. Returns how many blocks were run.

    instead: what is written in place of words in the page's files.
    """
    if with_tutorial:
        write_files(page("tutorial.md"), folder)
    write_files(page(name), folder, instead)
    told = [block for block in page(name).blocks if block.kind == "test"]
    for block in told:
        run_block(block, folder)
    return len(told)


def run_block(block: Block, folder: Path) -> None:
    """Run one block and hold its exit code against what the mark says."""
    if block.words[-1] == "interrupt":
        code, output = interrupted(block.text, folder)
        expected = STOPPED
    else:
        code, output = finished(block.text, folder)
        expected = int(block.words[-1]) if "exit" in block.words else 0
    assert code == expected, f"exit code {code}, not {expected}, of\n{block.text}\n{output}"


def finished(script: str, folder: Path) -> tuple[int, str]:
    """The exit code and the output of a script that runs to its end."""
    with tempfile.TemporaryFile("w+") as output:
        process = _start(script, folder, output)
        try:
            code = process.wait(timeout=LIMIT_SECONDS)
        finally:
            _end(process)
        output.seek(0)
        return code, output.read()


def interrupted(command: str, folder: Path) -> tuple[int, str]:
    """The exit code and the output of a command that gets ctrl-C once it has told of an epoch."""
    process = _start(f"exec {command}", folder, subprocess.PIPE)
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if " epoch 1/" in line:
                process.send_signal(signal.SIGINT)
                break
        lines += process.stdout.readlines()
        return process.wait(timeout=LIMIT_SECONDS), "".join(lines)
    finally:
        _end(process)


def _start(script: str, folder: Path, output: IO[str] | int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=reader_environment(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """End what a failure left running: bash, and with it fleet, whose ranks end with it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
