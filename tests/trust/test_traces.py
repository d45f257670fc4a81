"""Traces of tensors that somebody made to be read, and names that somebody laid where they are written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleet.commands.cli import app
from trainers.proof.tensor_trace import TensorHash, TensorTraceError, TraceFile, read_tensor_trace

HEADER = b'{"trace": 1}\n'
EVENT = TensorHash(0, None, "parameter", "0.weight", 0, "ab")


def line(**changes: object) -> bytes:
    told = {"step": 0, "worker": 0, "kind": "output", "name": "0", "call": 0, "hash": "ab", **changes}
    return json.dumps(told).encode() + b"\n"


def written(path: Path) -> Path:
    file = TraceFile(path)
    file.add([EVENT])
    file.close()
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        HEADER + b"[" * 60_000,
        HEADER + line(name="x" * 70_000),
        HEADER + b" " * (200 << 20),
        HEADER + line(kind="odd"),
        HEADER + line(step="0"),
        HEADER + line(worker=1.5),
        HEADER + line(hash=["ab"]),
        HEADER + line(**{"odd\x1b[31m": 1}),
        b"\xff\n",
        b"",
    ],
    ids=[
        "deep",
        "deep line",
        "long name",
        "long line",
        "kind",
        "step",
        "worker",
        "hash",
        "escapes",
        "no text",
        "empty",
    ],
)
def test_a_trace_that_nobody_writes_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.jsonl").write_bytes(content)
    with pytest.raises(TensorTraceError, match=r"odd\.jsonl: is damaged or no trace"):
        list(read_tensor_trace(tmp_path / "odd.jsonl"))
    if content.startswith(HEADER):
        answer = CliRunner().invoke(app, ["compare", str(tmp_path / "odd.jsonl"), str(written(tmp_path / "own.jsonl"))])
        assert answer.exit_code == 2 and "odd.jsonl" in answer.output and "\x1b[31m" not in answer.output


@pytest.mark.parametrize("other", ["pipe", "/dev/zero", "link"])
def test_what_is_no_file_is_no_trace(tmp_path: Path, other: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(TensorTraceError, match="not a regular file"):
        list(read_tensor_trace(tmp_path / other))
    answer = CliRunner().invoke(app, ["compare", str(written(tmp_path / "own.jsonl")), str(tmp_path / other)])
    assert answer.exit_code == 2 and re.search(r"is a (named pipe|device) and not a regular file", answer.output)


def test_no_trace_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    for name in ("x.jsonl", ".x.jsonl.partial"):
        (tmp_path / name).symlink_to("victim")
    assert list(read_tensor_trace(written(tmp_path / "x.jsonl"))) == [EVENT]
    assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "x.jsonl").is_symlink()
