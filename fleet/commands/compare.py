"""`fleet compare`: two checkpoints, run directories or traces, bit by bit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.arguments import AsJson
from fleet.commands.entry import mendable
from fleet.machine.launch.launched import DONE, FAILED
from fleet.machine.standard_streams import tell
from fleet.report.terminal import plain_table
from fleet.report.wording import printable

if TYPE_CHECKING:
    from rich.console import Console

    from trainers import Checkpoint
    from trainers.proof.comparison import StateComparison, TraceDifference

EQUAL, DIFFERENT = DONE, FAILED
_MOST_DIFFERENCES = 1000  # of a JSON object's


class CompareError(ValueError):
    """There is nothing that could be compared; the text says why and the mend."""


def compare(
    left: Annotated[Path, typer.Argument(help="a checkpoint, a run directory or a trace", metavar="A")],
    right: Annotated[Path, typer.Argument(help="another", metavar="B")],
    as_json: AsJson = False,
) -> None:
    """Say whether every bit of two checkpoints, runs or traces agrees; if not, name the first difference.

    Exit codes: 0 if all agree, 1 if not, 2 if one cannot be read.
    """
    from trainers import CheckpointError
    from trainers.proof.tensor_trace import TensorTraceError

    with mendable(CompareError, CheckpointError, TensorTraceError):
        sys.exit(_compare(left, right, as_json))


def _compare(left: Path, right: Path, as_json: bool) -> int:
    from trainers.proof.tensor_trace import is_trace

    traces = [not path.is_dir() and _opened(is_trace, path) for path in (left, right)]
    if all(traces):
        return _compare_traces(left, right, as_json)
    if any(traces):
        raise CompareError(f"{left} and {right}: one is a trace and the other is none; give two of a kind")
    return _compare_states(_states(left), _states(right), as_json)


def _opened(look: Callable[[Path], bool], path: Path) -> bool:
    """Return what a look into a file says. CompareError: it is not there, is none, or cannot be opened."""
    mend = "give a checkpoint, a run directory or a trace"
    try:
        return look(path)
    except FileNotFoundError:
        raise CompareError(f"{path}: there is no such file or folder; {mend}") from None
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror or error}; {mend}") from error


def compare_states_of(left: Path, right: Path) -> int:
    """Print whether two checkpoints agree; returns the exit code.

    Raises:
        CheckpointError: one cannot be read.
    """
    return _compare_states(_states(left), _states(right), as_json=False)


# Checkpoints and runs.


@dataclass(frozen=True)
class _State:
    """A job's state to compare, and where it is from."""

    path: Path
    checkpoint: Checkpoint


def _states(path: Path) -> dict[str, _State]:
    """The states in a path by job; a file's has the name "".

    Raises:
        CheckpointError, CompareError: there is none that can be read.
    """
    from trainers import read

    if path.is_file():
        return {"": _State(path, read(path))}
    jobs = path / "checkpoints"
    if jobs.is_dir():
        found = {folder.name: _latest(folder) for folder in sorted(jobs.iterdir()) if folder.is_dir()}
        if found:
            return found
        raise CompareError(f"{path}: no job of this run has written a checkpoint yet")
    if any(path.glob("*.h5")):
        return {"": _latest(path)}
    raise CompareError(f"{path}: neither a run directory (it has no checkpoints/) nor a job's folder of checkpoints")


def _latest(folder: Path) -> _State:
    from trainers import file_name, latest_good

    checkpoint, rejected = latest_good(folder)
    for error in rejected:
        tell(f"passed over: {error}")
    if checkpoint is None:
        raise CompareError(f"{folder}: holds no checkpoint that is whole")
    return _State(folder / file_name(checkpoint), checkpoint)


def _compare_states(left: dict[str, _State], right: dict[str, _State], as_json: bool) -> int:
    from trainers.proof.comparison import compare_checkpoints

    if ("" in left) != ("" in right):
        left, right = _only_job(left), _only_job(right)
    both = [job for job in left if job in right]
    missing = [f"job {job} is on one side alone" for job in [*left, *right] if job not in both]
    if not both:
        raise CompareError(f"the runs have no job in common: {', '.join(left)} and {', '.join(right)}")
    parts = [
        compare_checkpoints(left[job].checkpoint, right[job].checkpoint, f"{job}: " if job else "") for job in both
    ]
    result = parts[0].joined(parts[1:])
    shown = [line for job in both for line in _shown(left[job], right[job])]
    (_print_json if as_json else _print_states)(result, missing, shown)
    return EQUAL if result.is_equal and not missing else DIFFERENT


def _only_job(states: dict[str, _State]) -> dict[str, _State]:
    """A run of one job may be held against a file."""
    if len(states) != 1:
        raise CompareError(
            f"a run of {len(states)} jobs and a file: name the job's own folder, such as checkpoints/{min(states)}"
        )
    return {"": next(iter(states.values()))}


def _shown(left: _State, right: _State) -> Iterator[str]:
    """The entries that are shown and not compared."""
    from trainers.proof.comparison import history_difference, not_compared

    ours, theirs = not_compared(left.checkpoint), not_compared(right.checkpoint)
    if ours["job"] != theirs["job"]:
        yield f"job: {ours['job']} and {theirs['job']}"
    for name in sorted(ours["pins"].keys() | theirs["pins"].keys()):
        values = [pins.get(name) or "unset" for pins in (ours["pins"], theirs["pins"])]
        if values[0] != values[1]:
            yield f"pin {name}: {values[0]} and {values[1]}"
    if told := history_difference(ours["history"], theirs["history"]):
        yield f"history: {told}"


def _print_states(result: StateComparison, missing: list[str], shown: list[str]) -> None:
    from rich.console import Console

    console = Console()
    for line in shown:
        _say(console, f"not compared: {line}")
    if result.differences or missing:
        for line in missing:
            _say(console, line)
        if result.differences:
            _say(console, f"first difference: {result.differences[0]}")
        console.print(_table(result))
    tensors, elements = (sum(getattr(s, name) for s in result.sections) for name in ("tensors", "elements"))
    if result.is_equal and not missing:
        _say(console, f"equal: every bit of {tensors} tensors and values, {elements} elements")
    else:
        differing, of = len(result.differences), sum(s.differing_elements for s in result.sections)
        first = f"; first: {result.differences[0]}" if result.differences else f"; {missing[0]}"
        _say(console, f"different: {differing} of {tensors} tensors and values, {of} of {elements} elements{first}")


def _say(console: Console, text: str) -> None:
    console.print(printable(text), soft_wrap=True, markup=False, highlight=False)


def _table(result: StateComparison) -> Any:
    table = plain_table()
    table.add_column("")
    for title in ("tensors", "differ", "elements", "differ", "largest ULPs"):
        table.add_column(title, justify="right")
    for section in (section for section in result.sections if section.tensors):
        numbers = (section.tensors, section.differing_tensors, section.elements, section.differing_elements)
        ulps = "" if section.largest_ulps is None else str(section.largest_ulps)
        table.add_row(section.name, *map(str, numbers), ulps)
    return table


def _print_json(result: StateComparison, missing: list[str], shown: list[str]) -> None:
    first = result.differences[0] if result.differences else None
    content = {
        "equal": result.is_equal and not missing,
        "kind": "checkpoints",
        "first": asdict(first) if first else None,
        "sections": [asdict(section) for section in result.sections],
        "differences": [asdict(difference) for difference in result.differences[:_MOST_DIFFERENCES]],
        "missing": missing,
        "not_compared": shown,
    }
    print(json.dumps(content, indent=1))


# Traces.


def _compare_traces(left: Path, right: Path, as_json: bool) -> int:
    from trainers.proof.comparison import compare_traces
    from trainers.proof.tensor_trace import read_tensor_trace

    agreeing, found = compare_traces(read_tensor_trace(left), read_tensor_trace(right))
    if as_json:
        sides = {side: asdict(event) if event else None for side, event in _sides(found)}
        print(json.dumps({"equal": found is None, "kind": "traces", "agreeing": agreeing, **sides}, indent=1))
    elif found is None:
        print(f"equal: all {agreeing} hashes")
    else:
        print(f"{agreeing} hashes agree before the first difference")
        print(_difference_text(found))
    return EQUAL if found is None else DIFFERENT


def _sides(found: TraceDifference | None) -> Iterator[tuple[str, Any]]:
    yield "left", found.left if found else None
    yield "right", found.right if found else None


def _difference_text(found: TraceDifference) -> str:
    place: Callable[[Any], str] = lambda event: "nothing, it ends here" if event is None else _place(event)
    if found.is_same_place and found.left is not None and found.right is not None:
        return f"first difference: {_place(found.left)}: {found.left.hash} and {found.right.hash}"
    return f"the runs part: A has {place(found.left)}; B has {place(found.right)}"


def _place(event: Any) -> str:
    who = "all workers" if event.worker is None else f"virtual worker {event.worker}"
    kind = {
        "output": "output of",
        "grad-input": "gradient with respect to the input of",
        "grad-param": "gradient with respect to",
        "reduced": "reduced gradient of",
        "parameter": "parameter after the step,",
    }[event.kind]
    call = f", call {event.call}" if event.call else ""
    return f"step {event.step}, {who}, {kind} {event.name or 'the model'}{call}"
