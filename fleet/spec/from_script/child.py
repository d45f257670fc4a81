"""The process in which a script is watched: `python -m fleet.spec.from_script.child OUT PARTS SCRIPT OPTIONS...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet.spec.from_script.definitions import Definitions, parts_text, read_definitions
from fleet.spec.from_script.first_spec import Found, named_like
from fleet.spec.from_script.first_step import (
    Report,
    network_of,
    note_network,
    read_loss,
    read_optimizer,
    read_options,
    read_samples,
    read_schedule,
)
from fleet.spec.from_script.value_origins import Calls, Unwritten
from fleet.spec.from_script.watched_script import Script, ScriptFailed, Step, Watch, watched
from preprocess.files.writing import write_whole

PARTS = "PARTS:"


def read_script(script: Script, options: Sequence[str], parts: str) -> Found:
    """Run a script until its second step, and write down what it trains.

    Args:
        script: the script.
        options: what stands behind its name on its command line.
        parts: the name of the module for what plain values cannot say.

    Raises:
        ScriptFailed: it ends by an error before its first step.
    """
    watch = watched(script, options)
    if watch.step is None:
        return read_definitions(script)
    own = Definitions.of(script.path)
    copies = own.trains_when_imported
    calls = Calls(watch.provenance, parts if copies else script.module)
    report = Report()
    _read(report, calls, watch, watch.step)
    text, names = _parts(report, calls, own, copies)
    if copies and text is not None and calls.own | calls.named:
        report.tell(
            f"importing {script.path.name} would train, so {parts}.py has copies of its definitions; "
            'with the training under if __name__ == "__main__": the spec could name the script itself'
        )
    addresses = {f"{PARTS}{key}": f"{parts}:{name}" for key, name in names.items()}
    seed = report.job.pop("seed", 0)
    job = {"name": named_like(script.path.stem), "data": "samples", **_addressed(report.job, addresses)}
    data = {"samples": _addressed(report.data, addresses)}
    return Found(data, (job,), seed, text, tuple(report.told), tuple(report.problems))


def _parts(report: Report, calls: Calls, script: Definitions, copies: bool) -> tuple[str | None, dict[str, str]]:
    """The text of the file of parts, None where none is needed; and what its functions are called."""
    taken = calls.own | calls.named | (script.names if copies else set())
    names = {key: f"{key}_of_spec" if key in taken else key for key in report.functions}
    try:
        return parts_text(calls, script, report.functions, names, copies), names
    except Unwritten as problem:
        report.fail(str(problem), 'or put what trains under if __name__ == "__main__":')
        return None, names


def _read(report: Report, calls: Calls, watch: Watch, step: Step) -> None:
    network = network_of(step)
    if network is None:
        report.fail("no module has all of the optimizer's parameters", "give it model.parameters() of one network")
        return
    note_network(report, calls, watch, step, network)
    read_samples(report, calls, watch, step)
    read_optimizer(report, calls, watch, step, network)
    read_schedule(report, calls, watch, step)
    read_loss(report, calls, step, network)
    read_options(report, watch, step)


def _addressed(values: Any, addresses: Mapping[str, str]) -> Any:
    """Values with the addresses of what they name in the file of parts."""
    if isinstance(values, dict):
        return {key: _addressed(each, addresses) for key, each in values.items()}
    if isinstance(values, list):
        return [_addressed(each, addresses) for each in values]
    return addresses.get(values, values) if isinstance(values, str) else values


def main(out: str, parts: str, target: str, *options: str) -> None:
    """Read a script (a path that ends in .py, or a module's name), and write what was found to `out`."""
    # Where Python looks first for the modules of a script that a person runs.
    sys.path.insert(0, str(Path(target).resolve().parent) if target.endswith(".py") else os.getcwd())
    try:
        script = Script(Path(target).resolve(), Path(target).stem) if target.endswith(".py") else Script.named(target)
        found = read_script(script, options, parts)
    except ScriptFailed as problem:
        found = Found(problems=(str(problem),))
    write_whole(out, found.to_text())
    sys.stdout.flush()
    os._exit(0)  # whatever threads and processes the script has left


if __name__ == "__main__":
    main(*sys.argv[1:])
