"""`fleet replay`: one job of a run again, alone, to see that its bits are those of the run."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.commands.arguments import RunFolder, Trust
from fleet.commands.compare import compare_states_of
from fleet.commands.ending import mendable
from fleet.commands.one_job.options import TrainOptions
from fleet.commands.train import Ddp, TrainerCount, run_job
from fleet.machine.launch.launched import DONE, inside_launcher
from fleet.machine.standard_streams import tell

if TYPE_CHECKING:
    from fleet.models.replay import ReplayedJob

TASK = "fleet.models.replay:ReplayedTask"


def replay(
    directory: RunFolder,
    job: Annotated[str, typer.Argument(help="one of the run's jobs", metavar="JOB", show_default=False)],
    ddp: Ddp = False,
    trainers: TrainerCount = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="where the state goes; default: it is not kept", show_default=False)
    ] = None,
    trust: Trust = False,
) -> None:
    """Train a job of a run again, alone and from its first step, and compare every bit with the run's checkpoint.

    It trains up to the step of the job's newest checkpoint, on the samples of the run and with its batch.

    Exit codes: 0 if all bits agree, 1 if not, 2 if there is nothing to compare with, 75 after a signal.
    """
    from fleet.models.errors import HarvestError
    from fleet.spec import SpecError
    from fleet.workers.agreement import BadInput
    from trainers import CheckpointError

    with (
        mendable(BadInput, HarvestError, SpecError, CheckpointError),
        tempfile.TemporaryDirectory(prefix="fleet-replay-") as folder,
    ):
        sys.exit(_replay(directory, job, ddp, trainers, checkpoint or Path(folder) / "replayed.h5", trust))


def _replay(directory: Path, name: str, ddp: bool, trainers: int | None, target: Path, trust: bool) -> int:
    from fleet.models.recorded_spec import check_trusted
    from fleet.models.replay import ReplayedJob, newest_checkpoint

    check_trusted(directory, trust)
    recorded = ReplayedJob.read(directory, name)
    newest, steps = newest_checkpoint(recorded)
    if not inside_launcher():
        for change in recorded.unlike:
            tell(f"job {name}: {change}; a replay trains all of it on what is there now, and may come to other bits")
    code = run_job(_options(recorded, steps, ddp, trainers, target, trust))
    if code != DONE or inside_launcher():
        return code
    return compare_states_of(newest, target)


def _options(
    recorded: ReplayedJob, steps: int, ddp: bool, trainers: int | None, target: Path, trust: bool
) -> TrainOptions:
    """As `fleet train` would be told all that the run's spec says."""
    spec, job = recorded.spec, recorded.job
    asked, directory = spec.determinism, str(recorded.directory.path.absolute())
    words = ("replay", *(["--trust"] if trust else []), directory, job.name)
    return TrainOptions(
        TASK, job.virtual_workers, steps, trainers, target.absolute(), None, asked.level, ddp,
        threads=spec.resources.threads, device=spec.resources.device, instruction_set=asked.instruction_set,
        matmul=asked.matmul, convolutions=asked.convolutions,
        made_with={"directory": directory, "job": job.name}, command=words,
    )  # fmt: skip
