"""The arguments that several commands take, and what their texts mean."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

_MOST_DEVICES = 65_536

SpecFile = Annotated[Path, typer.Argument(help="the ensemble's spec, a YAML file", metavar="SPEC", show_default=False)]
RunFolder = Annotated[Path, typer.Argument(help="a run directory", metavar="DIR", show_default=False)]
Trainers = Annotated[
    int | None, typer.Option(help="trainer ranks, one for each device; default: as many as there are devices")
]
Preprocessors = Annotated[int | None, typer.Option(help="preprocessor ranks")]
PolicyName = Annotated[
    str | None, typer.Option(help="flotilla, elasticflow, deadline ..., or module:Name; a wrong name lists all")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="change one value of the spec: a.b=c", metavar="KEY=VALUE")
]
ClusterShape = Annotated[str | None, typer.Option("--cluster", help="nodes x devices, such as 3x4")]
Start = Annotated[
    str | None, typer.Option("--start", metavar="TIME", help="when second 0 is, for deadlines that are times of day")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="run the code that the run's spec names although another user chose it")
]
AcceptChanges = Annotated[
    bool, typer.Option("--accept-changes", help="go on although data or code is not what the run was trained on")
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]


def changes_of(
    trainers: int | None, preprocessors: int | None, policy: str | None, settings: list[str] | None
) -> tuple[str, ...]:
    """All options that change the spec, as `--set` texts; explicit ones come last and win."""
    changes = []
    if trainers is not None:
        changes.append(f"resources.trainers={trainers}")
    if preprocessors is not None:
        changes.append(f"resources.preprocessors={preprocessors}")
    if policy is not None:
        changes += [f"policy.name={json.dumps(policy)}", "policy.parameters={}"]  # restart and margin stay
    return (*changes, *(settings or []))


def start_of(text: str | None) -> float | None:
    """Seconds since 1970 of what --start says; None: nothing. ValueError: it is no time."""
    from fleet.spec.values import timestamp, unix_seconds

    return None if text is None else unix_seconds(timestamp(text))


def cluster_shape(text: str | None) -> tuple[int, ...] | None:
    """The devices of each node: `3x4` is three nodes of four, `4,4,2` names each node's. ValueError for other texts."""
    if text is None:
        return None
    runs: list[tuple[int, int]] = []
    with suppress(ValueError):
        if "x" in text:
            nodes, devices = map(int, text.split("x"))
            runs = [(nodes, devices)]
        else:
            runs = [(1, int(part)) for part in text.split(",")]
    if not runs or min(map(min, runs)) < 1:
        raise ValueError(
            f"--cluster {text}: nodes x devices of each, such as 3x4, or the devices of each node, such as 4,4,2"
        )
    if sum(nodes * devices for nodes, devices in runs) > _MOST_DEVICES:
        raise ValueError(
            f"--cluster {text}: these are more than {_MOST_DEVICES:,} devices, the most that can be planned"
        )
    return tuple(devices for nodes, devices in runs for _ in range(nodes))
