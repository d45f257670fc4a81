"""`fleet report`: one page that tells what a run did."""

from __future__ import annotations

from fleet.commands.arguments import RunFolder
from fleet.commands.ending import end
from fleet.machine.launch.exit_codes import BAD_INPUT


def report(directory: RunFolder) -> None:
    """Write one self-contained report.html from the run's journal."""
    from fleet.report.page import write_report

    if not (directory / "journal.jsonl").is_file():
        end(BAD_INPUT, f"{directory} holds no run: there is no journal.jsonl in it; name the --out of a `fleet run`")
    print(write_report(directory))
