"""How `python -m fleet` begins."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from fleet.commands.cli import app
from fleet.commands.entry import COMMANDS, command_of
from fleet.machine.launch.launched import loading

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["random", "tempfile", "json"])
def test_a_module_in_the_current_folder_hides_none_of_pythons(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    command = [sys.executable, "-m", "fleet", "doctor", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "doctor" in done.stdout, done.stderr


def test_each_command_is_loaded_alone_and_stands_in_the_whole() -> None:
    whole = [command.callback for command in app.registered_commands]
    assert whole == [command_of(name) for name in COMMANDS] and len({*whole}) == len(COMMANDS)


def test_a_word_that_is_no_command_is_told_with_those_that_there_are() -> None:
    done = subprocess.run([sys.executable, "-m", "fleet", "runn"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "run" in done.stderr.replace("runn", ""), done.stderr


def test_garbage_is_collected_again_behind_what_is_loaded_and_only_where_it_was() -> None:
    with pytest.raises(ImportError), loading():
        assert not gc.isenabled()
        import_module("fleet.commands.none_such")
    assert gc.isenabled()
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_loaded_is_never_looked_through_for_garbage() -> None:
    before = gc.get_freeze_count()
    try:
        with loading():
            kept = [[number] for number in range(5000)]
        assert gc.get_freeze_count() >= before + len(kept)
    finally:
        gc.unfreeze()
