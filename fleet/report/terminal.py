"""What all tables and progress bars on a terminal look like."""

from __future__ import annotations

import shutil
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import TextType


def plain_table(title: str | None = None, show_header: bool = True) -> Table:
    """A table without lines, two spaces between its columns."""
    return Table(
        title=title,
        title_justify="left",
        show_header=show_header,
        header_style="dim",
        box=None,
        expand=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )


def ruled_table(title: str | None = None, caption: TextType | None = None, header_style: str = "table.header") -> Table:
    """A table with lines."""
    return Table(title=title, title_justify="left", caption=caption, caption_justify="left", header_style=header_style)


def progress_bar(console: Console, transient: bool = False) -> Progress:
    """A bar that counts, with each task's field `note` beside it; nothing is shown off terminals that move a cursor.

    Args:
        transient: the bar goes away at its end.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    capable = console.is_terminal and not console.is_dumb_terminal
    return Progress(*columns, console=console, disable=not capable, transient=transient)


def terminal_size() -> tuple[int, int] | None:
    """Columns and lines of the terminal that standard output is; None where it is none."""
    if not sys.stdout.isatty():
        return None
    size = shutil.get_terminal_size()
    return size.columns, size.lines
