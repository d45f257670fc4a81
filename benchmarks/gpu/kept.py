"""What gpu_check has found on a device, in a file of profiles/gpu and as Markdown for docs/explanation/gpu.md.

python -m benchmarks.gpu.kept docs/explanation/gpu.md    renews the tables in that page, between their marks
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.found_device import FoundDevice
from benchmarks.gpu.part import ROOT
from fleet.journal.whole_files import strict_json
from preprocess.files.writing import make_folder, write_whole

FORMAT = 1
FOLDER = ROOT / "profiles" / "gpu"
NOT_RUN = "Not run yet."
_BEGIN, _END = "<!-- gpu-check -->\n", "<!-- end of gpu-check -->"


def kept(device: FoundDevice, when: str, parts: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the content of a device's file (its format stands in profiles/README.md).

    before: the file's content so far; parts that were not measured now stay if the versions are the same.
    """
    stays = before is not None and before["format"] == FORMAT and before["versions"] == device.versions
    old = before["parts"] if before is not None and stays else {}
    now = {name: {"when": when, **part} for name, part in parts.items()}
    told = {"device": device.name, "kind": device.kind, "count": device.count, "memory": device.memory}
    return {"format": FORMAT, **told, "versions": dict(device.versions), "parts": {**old, **now}}


def keep(device: FoundDevice, when: str, parts: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write what was measured into the device's file; return its path. OSError."""
    path = folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', device.name)}.json"
    before = json.loads(path.read_text()) if path.exists() else None
    make_folder(folder)
    write_whole(path, strict_json(kept(device, when, parts, before), indent=1) + "\n")
    return path


def all_as_markdown(folder: Path = FOLDER) -> str:
    """Return the tables of every device's file, or that there is none."""
    files = sorted(folder.glob("*.json"))
    return "\n".join(as_markdown(json.loads(path.read_text())) for path in files) if files else f"{NOT_RUN}\n"


def as_markdown(told: Mapping[str, Any]) -> str:
    """Return the tables of one device."""
    versions = ", ".join(f"{name} {value}" for name, value in told["versions"].items())
    memory = f"{told['memory'] / 2**30:.0f} GiB"
    lines = [f"### {told['device']}", f"{told['count']} of {memory}; {versions}.", ""]
    ends = [
        [name, part["status"], part["words"], part["seconds"], part["when"]] for name, part in told["parts"].items()
    ]
    lines += _table(["part", "ended", "words", "s", "when"], ends)
    for name, part in told["parts"].items():
        bars = [[bar["name"], bar["value"], bar["bar"], "ok" if bar["ok"] else "SHORT"] for bar in part["bars"]]
        lines += [f"#### {name}", *_table(["bar", "value", "wanted", ""], bars)] if bars or part["tables"] else []
        for table in part["tables"]:
            lines += [f"{table['title']}:", "", *_table(table["columns"], table["rows"])]
        lines += [*(f"* {_cell(note)}" for note in part["notes"]), ""] if part["notes"] else []
    return "\n".join(lines)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    if not rows:
        return
    for row in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"
    yield ""


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())


def filled(page: str, folder: Path = FOLDER) -> str:
    """Return a page of the documentation with the tables in their place. ValueError if it has no place for them."""
    head, begin, rest = page.partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the page has no place for the tables: {_BEGIN.strip()} ... {_END}")
    return f"{head}{begin}{all_as_markdown(folder)}{end}{tail}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    write_whole(page, filled(page.read_text()))
