"""What `fleet predict` shows of its figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from fleet.report import wording
from fleet.report.terminal import plain_table

COLUMNS = ("accuracy", "nll", "brier", "ece")
SCALED = ("temperature", "nll", "brier", "ece")
TOGETHER, SOUP = "all together", "soup"
_MOST_NAMES = 8


def figures_table(told: dict[str, Any]) -> Table:
    """One row for each network, one for all together, and one for a soup.

    Args:
        told: see `fleet.models.predict`.
    """
    made = _empty("weight", *COLUMNS)
    for name, figures in told["members"].items():
        made.add_row(Text(wording.printable(name)), f"{told['weights'][name]:.3f}", *_cells(figures, COLUMNS))
    made.add_row(TOGETHER, "", *_cells(told["ensemble"], COLUMNS), style="bold")
    if "soup" in told:
        made.add_row(SOUP, "", *_cells(told["soup"], COLUMNS), style="bold")
    return made


def scaled_table(told: dict[str, Any]) -> Table:
    """Make a table of the same rows with temperatures, and the figures that these change."""
    made, scaled = _empty(*SCALED), told["scaled"]
    for name, figures in scaled["members"].items():
        made.add_row(Text(wording.printable(name)), *_cells(figures, SCALED))
    for row, key in ((TOGETHER, "ensemble"), (SOUP, "soup")):
        if key in scaled:
            made.add_row(row, *_cells(scaled[key], SCALED), style="bold")
    return made


def _empty(*titles: str) -> Table:
    made = plain_table()
    made.add_column("network", no_wrap=True)
    for title in titles:
        made.add_column(title, justify="right", no_wrap=True)
    return made


def _cells(figures: dict[str, Any], columns: tuple[str, ...]) -> list[str]:
    return [f"{figures[name]:.4f}" for name in columns]


def lines(told: dict[str, Any]) -> Iterator[str]:
    """What is said below the table."""
    figures, samples = told["ensemble"], told["samples"]
    done = "temperatures were fitted" if "scaled" in told else "networks were chosen"
    half = f"; {done} on the other {told['chosen_on']:,}" if "chosen_on" in told else ""
    kind = "held-out sample" if told["labelled"] else "sample without labels"
    count = f"{samples:,} {kind if samples == 1 else kind.replace('sample', 'samples')}"
    yield f"disagreement {figures['disagreement']:.4f}, diversity {figures['diversity']:.4f}, on {count}{half}"
    if SOUP in told:
        soup = told[SOUP]
        names = [wording.printable(name) for name in soup["members"]]
        listed = ", ".join(names[:_MOST_NAMES]) + (" ..." if len(names) > _MOST_NAMES else "")
        buffers = len(soup["averaged_buffers"])
        more = f", and of {buffers} buffers such as running statistics, which were not measured anew" if buffers else ""
        yield f"soup: the mean of the weights of {listed}{more}"
    if "scaled" in told:
        yield "with temperatures, which leave the answers as they are:"
