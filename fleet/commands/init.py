"""`fleet init`: a first spec from a training script or a package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.entry import end, mendable
from fleet.machine.launch.launched import BAD_INPUT

if TYPE_CHECKING:
    from fleet.spec.from_script.first_spec import Found

_Target = Annotated[
    str, typer.Argument(help="a training script, or a module's name", metavar="SCRIPT|MODULE", show_default=False)
]
_Out = Annotated[Path | None, typer.Option(help="the spec's file; default: SCRIPT.yaml beside it", show_default=False)]
_Within = Annotated[float, typer.Option(help="seconds that the script may take to its second step", min=1)]
_Force = Annotated[bool, typer.Option("--force", help="write over files that are there")]
_Options = Annotated[list[str] | None, typer.Argument(help="the script's own options, after --", metavar="OPTIONS")]


def init(
    target: _Target, options: _Options = None, out: _Out = None, within: _Within = 300.0, force: _Force = False
) -> None:
    """Write a first spec of what a training script trains, for the machine that you are on.

    Runs the script until its second step, on the CPU where there is no GPU, and looks on: which network, data,
    optimizer, schedule and loss it makes, with which arguments. Of a module that trains nothing it takes the networks,
    data sets and tasks that it defines. Exit codes: 0, or 2 where a spec cannot say it (all reasons are told).
    """
    from fleet.spec.from_script.first_spec import watch_script

    file, parts = _files(target, out)
    _check(target, (file, parts), force)
    found = watch_script(target, options or [], parts.stem, within)
    if found.problems:
        many = "\n".join(f"  {each}" for each in found.problems)
        end(BAD_INPUT, f"{target}: no spec was written:\n{many}")
    _write(found, file, parts, target)
    _try(file)


def _files(target: str, out: Path | None) -> tuple[Path, Path]:
    """The spec's file, and that of the parts beside it."""
    if out is None:
        out = Path(target).with_suffix(".yaml") if target.endswith(".py") else Path(f"{target.rpartition('.')[2]}.yaml")
    letters = "".join(each if each.isalnum() else "_" for each in out.stem)
    return out, out.with_name(f"{'_' if letters[:1].isdigit() else ''}{letters}_parts.py")


def _check(target: str, files: tuple[Path, ...], force: bool) -> None:
    if target.endswith(".py") and not Path(target).is_file():
        end(BAD_INPUT, f"{target}: there is no such file")
    if "/" in target and not target.endswith(".py"):
        end(BAD_INPUT, f"{target}: name a script that ends in .py, or a module as Python imports it")
    there = [str(file) for file in files if file.exists()]
    if there and not force:
        end(BAD_INPUT, f"{' and '.join(there)}: already there; give another --out, or --force to write over")
    if not files[0].parent.is_dir():
        end(BAD_INPUT, f"{files[0].parent}: there is no such folder")


def _write(found: Found, file: Path, parts: Path, target: str) -> None:
    """Write the spec and its parts, and tell what they say."""
    from fleet.spec.from_script.first_spec import named_like, spec_of, spec_text
    from preprocess.files.writing import write_whole

    spec = spec_of(found, named_like(file.stem), _resources())
    if found.parts is not None:
        write_whole(parts, found.parts)
    write_whole(file, spec_text(spec, target, found.told))
    for line in _told(spec):
        print(line)
    for each in found.told:
        print(f"note: {each}")
    print(f"{file}{f' and {parts}' if found.parts is not None else ''}: written")


def _resources() -> dict[str, Any]:
    """Return what this machine has."""
    from fleet.machine.devices import HiddenGpus, found_kind, local_trainers

    try:
        kind = found_kind()
    except HiddenGpus:
        kind = "cpu"
    return {"device": kind, "trainers": local_trainers(kind), "preprocessors": 1}


def _told(spec: dict[str, Any]) -> Iterator[str]:
    """A line for each thing that the spec says."""
    for section in spec.get("data", {}).values():
        for part, source in section.items():
            if isinstance(source, dict) and "source" in source:
                yield f"{part.replace('_', '-')} samples: {_call(source['source'], source.get('arguments', {}))}"
    for job in spec["jobs"]:
        for key in ("model", "task", "optimizer", "schedule", "loss"):
            if key in job:
                named = job[key] if isinstance(job[key], dict) else {"name": job[key]}
                each = " each epoch" if named.get("each") == "epoch" else ""
                yield f"{job['name']}: {key}: {_call(named['name'], named.get('arguments', {}))}{each}"


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})" if arguments else name


def _try(file: Path) -> None:
    """Hold the spec against what a run needs of it; says what is wrong with it, as `fleet plan` would."""
    from fleet.session.dry_run import make_plan
    from fleet.spec import load

    with mendable():
        plan = make_plan(load(file), None)
    if plan.problems:
        end(BAD_INPUT, "\n".join(plan.problems))
    sys.stdout.flush()
    print(f"next: fleet plan {file}, then fleet run {file}")
