"""`fleet report`: the page of a run that stands still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from typer.testing import Result


def test_the_page_is_written_and_named(kept: Path, call: Callable[..., Result]) -> None:
    ended = call("report", kept)
    assert ended.exit_code == 0, ended.output
    page = kept / "report.html"
    assert ended.stdout.strip() == str(page)
    text = page.read_text()
    assert "long" in text and "short" in text


def test_a_folder_without_a_run_is_told_what_to_name(tmp_path: Path, call: Callable[..., Result]) -> None:
    ended = call("report", tmp_path)
    assert ended.exit_code == 2
    assert ended.stderr == (
        f"fleet: {tmp_path} holds no run: there is no journal.jsonl in it; name the --out of a `fleet run`\n"
    )
