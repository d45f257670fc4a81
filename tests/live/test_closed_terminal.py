"""A terminal that closes, as when a connection is lost, stops a run in good order; below nohup it goes on."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.live.support.ensembles import RunFolder, mlp, write_ensemble
from tests.live.support.processes import FLEET, LIMIT_SECONDS, POLL_SECONDS, run

LONG = 1_000_000
ON_ITS_OWN = {"FLEET_WARM": ""}
"""Terminals send their signals to what they have started, not to what another process forks for it."""
_TASK = ["train", "tests.commands.support.small_tasks:Small", "--virtual-workers", "2", "--steps", str(LONG)]
TRAIN = [*_TASK, "--checkpoint", "x.h5", "--trainers", "1"]


class Terminal:
    """What a command runs in; it takes what is written, until it closes."""

    def __init__(self, words: list[str], folder: Path, prepare: Callable[[], object]) -> None:
        self._file, theirs = pty.openpty()

        def enter() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            prepare()

        self.process = subprocess.Popen(
            [*FLEET, *words], cwd=folder, env={**os.environ, **ON_ITS_OWN}, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True, preexec_fn=enter,
        )  # fmt: skip
        os.close(theirs)
        self.text, self._closes = b"", os.eventfd(0)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while self._closes not in select.select([self._file, self._closes], [], [])[0]:
                self.text += os.read(self._file, 1 << 16)
        os.close(self._file)

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not holds():
            assert time.monotonic() < deadline and self.process.poll() is None, f"no {what}: {self.text.decode()}"
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        os.eventfd_write(self._closes, 1)
        self._reader.join()


@contextmanager
def in_terminal(words: list[str], folder: Path, hangups: signal.Handlers = signal.SIG_DFL) -> Iterator[Terminal]:
    """Run a command in a terminal. hangups: what becomes of them, whatever these tests themselves run below."""
    terminal = Terminal(words, folder, partial(signal.signal, signal.SIGHUP, hangups))
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        terminal.close()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Where a job trains that goes on for longer than any test."""
    return write_ensemble(tmp_path, [mlp(stop={"epochs": LONG})]).left("out")


def test_a_run_stops_at_its_next_step(folder: RunFolder) -> None:
    with in_terminal(["run", "ensemble.yaml", "--out", "out"], folder.path.parent) as terminal:
        terminal.wait_for(lambda: bool(folder.events("epoch")), "epoch")
        terminal.close()
        assert terminal.process.wait(LIMIT_SECONDS) == 75
    assert folder.summary["status"] == "stopped" and folder.checkpoints("mlp")


def test_below_nohup_it_goes_on(folder: RunFolder) -> None:
    with in_terminal(["run", "ensemble.yaml", "--out", "out"], folder.path.parent, signal.SIG_IGN) as terminal:
        terminal.wait_for(lambda: bool(folder.events("epoch")), "epoch")
        terminal.process.send_signal(signal.SIGHUP)
        seen = len(folder.events("epoch"))
        terminal.wait_for(lambda: len(folder.events("epoch")) > seen + 1, "later epoch")
        assert run([*FLEET, "stop", "out"], folder.path.parent).code == 0
        assert terminal.process.wait(LIMIT_SECONDS) == 75


def test_a_single_job_keeps_what_it_has(tmp_path: Path) -> None:
    with in_terminal(TRAIN, tmp_path) as terminal:
        terminal.wait_for(lambda: b"epoch 2 done" in terminal.text, "second epoch")
        terminal.close()
        assert terminal.process.wait(LIMIT_SECONDS) == 75
    assert (tmp_path / "x.h5").is_file()


def test_it_does_where_the_reader_of_its_lines_is_gone(tmp_path: Path) -> None:
    process = subprocess.Popen([*FLEET, *TRAIN], cwd=tmp_path, env={**os.environ, **ON_ITS_OWN}, stdout=subprocess.PIPE)
    assert process.stdout is not None and b"epoch 1 done" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(LIMIT_SECONDS) == 75
    assert (tmp_path / "x.h5").is_file()
