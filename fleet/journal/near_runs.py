"""What to say where somebody names a directory that holds no run."""

from __future__ import annotations

from pathlib import Path

_MOST = 5


def no_run(directory: Path) -> str:
    """The directory holds no run; the runs that lie near it."""
    said = f"{directory} holds no run: there is no journal.jsonl in it"
    near = sorted({*_runs(directory), *_runs(directory.parent), *_runs(Path("runs"))} - {directory}, key=str)
    if not near:
        return f"{said}; name the --out of a `fleet run`"
    more = f" and {len(near) - _MOST} more" if len(near) > _MOST else ""
    return f"{said}; there are runs in {', '.join(map(str, near[:_MOST]))}{more}"


def _runs(folder: Path) -> list[Path]:
    try:
        return [path.parent for path in folder.glob("*/journal.jsonl")]
    except OSError:
        return []
