"""A script watched in a process of its own, and what was found written down as the text of a spec."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from preprocess.files.modules import python
from preprocess.files.reading import read_text


@dataclass(frozen=True)
class Found:
    """What is known of a script or a package; plain values, handed over as JSON.

    Attributes:
        data: the sections of data sets, by name.
        jobs: the jobs.
        seed: the seed.
        parts: the text of the file of parts; None: the spec needs none.
        told: what a reader of the spec should know.
        problems: what a spec cannot say, each with its mend.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    jobs: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0
    parts: str | None = None
    told: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Write all of it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Found:
        """Back from JSON."""
        values: dict[str, Any] = json.loads(text)
        return cls(**values | {name: tuple(values[name]) for name in ("jobs", "told", "problems")})


def named_like(stem: str) -> str:
    """A job's name after a file's: its letters and digits, and a dash for all others between them."""
    return "-".join(re.findall(r"[A-Za-z0-9]+", stem)) or "network"


CHILD = "fleet.spec.from_script.child"


def watch_script(target: str, options: Sequence[str], parts: str, seconds: float) -> Found:
    """Run a script until its second step, in a process that ends with it; what it prints goes to standard error.

    Args:
        target: a path that ends in .py, or the name of a module.
        options: the script gets these.
        parts: the name of the module for what plain values cannot say.
        seconds: how long the script may take.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-init-") as folder:
        out = Path(folder) / "found.json"
        words = python("-m", CHILD, str(out), parts, target, *options)
        process = subprocess.Popen(words, stdout=sys.stderr, start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            late = f"{target} has not come to its second step within {seconds:g} s; give it smaller data, or --within"
            return Found(problems=(late,))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # workers of its loaders
            process.wait()
        if not out.exists():
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return Found(problems=(f"the process that ran {target} {how} before its second step",))
        return Found.of_text(read_text(out))


_MOST_IN_LINE = 100  # characters
_WORKERS = """\
# A job is one virtual worker, as the script is one process, and uses one device. `virtual_workers: 4` in it would let
# it use up to four, with the weights that DDP has with four processes.
"""


class _Flow(dict[str, Any]):
    """A mapping that is written in one line."""


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(_Flow, lambda dumper, value: dumper.represent_mapping("tag:yaml.org,2002:map", value, True))
_Dumper.add_representer(
    list, lambda dumper, value: dumper.represent_sequence("tag:yaml.org,2002:seq", value, _is_flat(value))
)


def spec_of(found: Found, name: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a spec."""
    head = {"name": name, "seed": found.seed}
    data = {"data": dict(found.data)} if found.data else {}
    return head | data | {"jobs": [dict(job) for job in found.jobs], "resources": dict(resources)}


def spec_text(spec: Mapping[str, Any], source: str, told: tuple[str, ...]) -> str:
    """The text of a spec.

    Args:
        spec: its values.
        source: what it was read from.
        told: what a reader should know.
    """
    lines = [f"# What {source} trains. `fleet plan` tells what a run would look like, `fleet run` trains."]
    lines += [f"# Note: {each}." for each in told]
    text = yaml.dump(_flowed(spec), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return "\n".join(lines) + "\n" + text.replace("\njobs:", f"\n{_WORKERS}jobs:", 1)


def _flowed(values: Any, depth: int = 0) -> Any:
    """Values whose inner mappings are written in one line each where they are short."""
    if isinstance(values, Mapping):
        inner = {key: _flowed(each, depth + 1) for key, each in values.items()}
        is_job = "stop" in values
        return _Flow(inner) if depth > 1 and not is_job and len(str(values)) <= _MOST_IN_LINE else inner
    if isinstance(values, (list, tuple)):
        return [_flowed(each, depth + 1) for each in values]
    return values


def _is_flat(values: list[Any]) -> bool:
    return all(not isinstance(each, (list, dict)) for each in values)
