"""Processes are forked by the nursery wherever they may be: else the tests need several times as long."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import execnet
import pytest
from execnet.gateway_io import popen_args

from tests.warm.start.stand_in import WORKER


def is_forked() -> bool:
    command = [sys.executable, str(Path(__file__).with_name("is_forked.py"))]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "True\n"


def test_workers_of_pytest_are_forked_too() -> None:
    command = popen_args(execnet.XSpec("popen"))
    assert command[1:] == WORKER
    asked = f"{'import sys; print(chr(10).join(sys.modules))'!r}\n"
    ended = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=60)
    assert "torch" in ended.stdout.splitlines()


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "QT_QPA_FONTDIR"])
def test_variables_that_libraries_set_in_the_test_s_own_process_keep_nobody_from_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/anything")
    assert is_forked()


def test_a_process_that_cannot_be_as_the_nursery_is_starts_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    assert not is_forked()


def test_one_that_is_to_start_cold_does(started_cold: None) -> None:
    assert "FLEET_WARM" not in os.environ and not is_forked()


def test_a_stand_in_that_is_killed_while_it_speaks_takes_nobody_with_it() -> None:
    for words in (b"", b"\x05\0\0\0\0\0\0\0", b"\x05\0\0\0\0\0\0\0abc"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(os.environ["FLEET_WARM"])
            connection.sendall(words)
    assert is_forked()
