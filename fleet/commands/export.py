"""`fleet export`: a trained network's weights, or its program, in a file that plain torch reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.commands.arguments import RunFolder, Trust
from fleet.commands.ending import mendable
from fleet.report.wording import printable

PROGRAM = ".pt2"

_Job = Annotated[str, typer.Argument(help="one of the run's jobs", metavar="JOB", show_default=False)]
_File = Annotated[
    Path, typer.Argument(help="ends in .safetensors, or in .pt2 for a program", metavar="FILE", show_default=False)
]
_Which = Annotated[str, typer.Option("--checkpoint", help="best: the best that is kept, else the last; or last")]
_Program = Annotated[
    Path | None, typer.Option(help="write a program of torch.export, too; ends in .pt2", show_default=False)
]


def export(
    directory: RunFolder, job: _Job, file: _File, which: _Which = "best", program: _Program = None, trust: Trust = False
) -> None:
    """Write a trained network's weights to FILE, with where they are from and how good they are beside them.

    Plain torch loads FILE.safetensors: model.load_state_dict(safetensors.torch.load_file(FILE)). A program (.pt2) runs
    without the network's code: torch.export.load(FILE).module(). Reads the run only. Exit codes: 0, or 2 bad input.
    """
    from fleet.models.errors import HarvestError
    from fleet.models.recorded_spec import check_trusted
    from fleet.spec import ReferenceProblem, SpecError
    from fleet.workers.agreement import BadInput
    from preprocess import SourceError
    from preprocess.samples.errors import TransformError
    from trainers import CheckpointError

    kinds = (HarvestError, SpecError, BadInput, ReferenceProblem, CheckpointError, SourceError, TransformError)
    with mendable(*kinds):
        check_trusted(directory, trust)
        if which not in ("best", "last"):
            raise HarvestError(f"--checkpoint {which}: choose best or last")
        if file.suffix == PROGRAM:
            _export(directory, job, None, file, which)
        else:
            _check_ending(program)
            _export(directory, job, file, program, which)


def _check_ending(program: Path | None) -> None:
    from fleet.models.errors import HarvestError

    if program is not None and program.suffix != PROGRAM:
        raise HarvestError(f"--program {program}: let its name end in {PROGRAM}")


def _export(directory: Path, name: str, weights: Path | None, program: Path | None, which: str) -> None:
    """Write what is asked for, and say what it is."""
    from fleet.models.export import Weights, card_of, write_weights
    from fleet.models.members import read_members
    from fleet.models.network import read_network

    members = read_members(directory)
    member = members.of(name)
    network = read_network(member, members.spec, which)
    is_best = which == "best" and member.kept is not None and network.path == member.kept.path
    values = {} if network.checkpoint.step else network.checkpoint.history.at(network.checkpoint.epoch)
    told = ", ".join(f"{printable(metric)} {value:.6g}" for metric, value in values.items())
    what = f"the {'best' if is_best else 'last'} checkpoint, epoch {network.checkpoint.epoch}"
    print(f"{name}: {what}: {told or 'no metrics'}")
    if weights is not None:
        taken = Weights.of(network.model)
        write_weights(weights, taken, card_of(network, member, members.spec, taken.tied))
        print(f"{weights}: {len(taken.tensors)} tensors; {weights}.json says where they are from")
    if program is not None:
        from fleet.models.export import example_inputs, write_program

        example = network.prepare(example_inputs(members.spec, member.job))
        write_program(program, network.model, example, f"job {name}")
        shape = ", ".join(map(str, example.shape[1:]))
        print(f"{program}: a program of torch.export that takes ({', '.join(['samples', shape])}) of {example.dtype}")
