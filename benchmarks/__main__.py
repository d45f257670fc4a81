"""`python -m benchmarks NAME [--json | --table] [--repetitions N]`: tables, or JSON, and nothing else on the output."""

from __future__ import annotations

import importlib
import inspect
import json
import platform
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from fleet.machine.standard_streams import others_on_standard_error

HERE = Path(__file__).parent


def names() -> list[str]:
    """Benchmarks there are: the modules beside this one that have a `main`."""
    return sorted(
        path.stem for path in HERE.glob("*.py") if "\ndef main(" in path.read_text() and path.stem != "__main__"
    )


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    packages = ("torch", "numpy", "mpi4py")
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def main(
    name: Annotated[str, typer.Argument(help="which benchmark")],
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    repetitions: Annotated[
        int,
        typer.Option("--repetitions", "--kills", "--jobs", "--ensembles", help="how many of these; 0: its own number"),
    ] = 0,
    parts: Annotated[
        str, typer.Option(help="of gpu_check, harvest, numbers, search and others: what to measure, with commas")
    ] = "",
    seconds: Annotated[float, typer.Option(help="of gpu_check: for all parts together; 0: its own number")] = 0.0,
    device: Annotated[str, typer.Option(help="of gpu_check: rig, to try it without a GPU")] = "",
    as_markdown: Annotated[bool, typer.Option("--table", help="of gpu_check: print Markdown")] = False,
) -> None:
    """Run one benchmark. Exit code 1 if a bar is missed."""
    if name not in names():
        sys.exit(f"there is no benchmark {name!r}; there are: {', '.join(names())}")
    given = {"parts": parts, "seconds": seconds, "device": device}
    with others_on_standard_error():
        run = importlib.import_module(f"benchmarks.{name}").main
        result = run(repetitions, **_known(name, run, given))
    result["machine"] = machine()
    if as_markdown:
        print(result.get("markdown") or f"{name} gives no Markdown; leave --table out")
    elif as_json:
        print(json.dumps(result, indent=1))
    else:
        shown(name, result)
    sys.exit(0 if all(bar["ok"] for bar in result["bars"]) else 1)


def _known(name: str, run: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given; all of them are this benchmark's."""
    told = {option: value for option, value in given.items() if value}
    for option in told.keys() - inspect.signature(run).parameters.keys():
        sys.exit(f"the benchmark {name} knows no --{option}; leave it out")
    return told


def shown(name: str, result: dict[str, Any]) -> None:
    """Print the tables of a benchmark's result."""
    console = Console()
    table = Table(title=f"{name} on {result['machine']['cores']} cores, torch {result['machine']['torch']}")
    for column in ("bar", "value", "wanted", ""):
        table.add_column(column)
    for bar in result["bars"]:
        table.add_row(bar["name"], f"{bar['value']:.4g}", bar["bar"], "ok" if bar["ok"] else "SHORT")
    console.print(table)
    for rows in result.get("tables", []):
        more = Table(title=rows["title"])
        for column in rows["columns"]:
            more.add_column(column)
        for row in rows["rows"]:
            more.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
        console.print(more)
    for note in result.get("notes", []):
        console.print(note, markup=False)


if __name__ == "__main__":
    typer.run(main)
