"""The command line: `fleet run`, `plan`, `profile`, `report`, and those that have a module of their own."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import fleet
from fleet.commands.add import add
from fleet.commands.compare import compare
from fleet.commands.convert import convert
from fleet.commands.doctor import doctor
from fleet.commands.simulate import simulate
from fleet.commands.submit import submit
from fleet.commands.trace import trace_tensors
from fleet.commands.train import train
from fleet.run.ranks.options import RunOptions

app = typer.Typer(
    help="Train an ensemble of different networks in one MPI job, each with the bits it would have had alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SpecArgument = Annotated[
    Path, typer.Argument(help="the ensemble's spec, a YAML file", metavar="SPEC", show_default=False)
]
Trainers = Annotated[
    int | None, typer.Option(help="trainer ranks, one a device; default: as many as there are devices")
]
Preprocessors = Annotated[int | None, typer.Option(help="preprocessor ranks")]
PolicyName = Annotated[
    str | None, typer.Option(help="who gets which devices: flotilla, elasticflow, deadline ...; a wrong name lists all")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="change one value of the spec: a.b=c", metavar="KEY=VALUE")
]
Out = Annotated[Path | None, typer.Option(help="the run directory; default: runs/NAME. A run that it holds goes on")]
ClusterShape = Annotated[str | None, typer.Option("--cluster", help="nodes x devices, such as 3x4")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]


def main() -> None:
    """Entry point of the `fleet` command."""
    app()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        print(fleet.__version__)
        raise typer.Exit()


@app.command()
def run(
    spec: SpecArgument,
    out: Out = None,
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    policy: PolicyName = None,
    settings: Settings = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="replace each device's compute by a wait taken from rate curves")
    ] = False,
    cluster: ClusterShape = None,
    time_scale: Annotated[
        float | None, typer.Option(help="of a rehearsal: seconds for one second of a real run")
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="after ranks were lost: starts in a row without a new checkpoint between")
    ] = 3,
    in_place: Annotated[
        bool, typer.Option(help="let the others go on when a trainer is lost, where MPI can: Open MPI 5")
    ] = True,
    reduce: Annotated[
        str, typer.Option(help="what adds gradients: mpi, in the order of DDP; or horovod, whose bits are its own")
    ] = "mpi",
) -> None:
    """Train the ensemble; go on with it if the run directory holds it already.

    Starts local MPI ranks, or joins those that mpirun, srun or jsrun started. Exit codes: 0 done, 1 something failed,
    2 bad input, 70 ranks were lost, 75 stopped early on purpose (after both, run the same command again).
    """
    shape = _shape(cluster)
    if shape is not None and not rehearse:
        _bad_input("--cluster pretends nodes, which only a rehearsal can: add --rehearse")
    if shape is not None and trainers is None:
        trainers = sum(shape)
    changes = _changes(trainers, preprocessors, policy, settings)
    if time_scale is not None:
        changes.append(f"rehearse.time_scale={time_scale}")
    options = RunOptions(spec, tuple(changes), out, rehearse, shape, reduce=reduce)
    sys.exit(_launch(options, restarts, in_place and reduce == "mpi"))  # Horovod needs all whom it was started with


@app.command()
def profile(
    spec: SpecArgument,
    out: Annotated[Path, typer.Option(help="where the rates are written", show_default=False)],
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    settings: Settings = None,
    part: Annotated[
        str | None,
        typer.Option(help="measure only the I-th of K parts of the jobs, for job arrays", metavar="I/K"),
    ] = None,
) -> None:
    """Offline profiling run: measure how fast each job trains on how many devices, and write the rates to a file."""
    changes = _changes(trainers, preprocessors, None, settings)
    sys.exit(_launch(RunOptions(spec, tuple(changes), profile=out, part=_part(part))))


@app.command()
def plan(
    spec: SpecArgument,
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    policy: PolicyName = None,
    settings: Settings = None,
    cluster: ClusterShape = None,
    as_json: AsJson = False,
) -> None:
    """Dry run: cluster map, flotillas, predicted times, memory and shared memory; trains nothing."""
    from rich.console import Console

    from fleet.commands.plan import make_plan, plan_tables

    shape = _shape(cluster)
    loaded = _load(spec, _changes(trainers, preprocessors, policy, settings))
    with _people():
        made = make_plan(loaded, shape)
    if as_json:
        print(json.dumps(made.to_json(), indent=1))
        return
    console = Console()
    for table in plan_tables(made):
        console.print(table)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="a run directory", metavar="DIR", show_default=False)],
) -> None:
    """Write one self-contained report.html from the run's journal."""
    from fleet.report.page import write_report

    if not (directory / "journal.jsonl").is_file():
        _bad_input(f"{directory} holds no run: there is no journal.jsonl in it; name the --out of a `fleet run`")
    print(write_report(directory))


app.command()(add)
app.command()(train)
app.command()(compare)
app.command("trace-tensors")(trace_tensors)
app.command()(convert)
app.command()(doctor)
app.command()(simulate)
app.command()(submit)


def _launch(options: RunOptions, restarts: int = 0, in_place: bool = False) -> int:
    """Join the ranks that a launcher started, or start local ones."""
    from fleet.machine.launch.launched import inside_launcher

    with _people():
        options.check()
    if inside_launcher():
        from fleet.run.pinning import pin_rank

        with _people():
            pin_rank(options)
        from fleet.run.main import run_rank

        return run_rank(options)
    return _start_ranks(options, restarts, in_place)


def _start_ranks(options: RunOptions, restarts: int, in_place: bool) -> int:
    """Check what can be checked without ranks, then start them."""
    from fleet.machine.devices import local_trainers
    from fleet.machine.launch.local_launch import LaunchError, LocalLaunch, Restarts
    from fleet.run.pinning import variables_of
    from fleet.run_directory.directory import RunDirectory

    spec = _load(options.spec, list(options.overrides))
    with _people():
        variables = variables_of(spec)
    resources = spec.resources
    trainers = resources.trainers if resources.trainers is not None else local_trainers(resources.device)
    terminal = shutil.get_terminal_size() if sys.stdout.isatty() else None
    size = (terminal.columns, terminal.lines) if terminal else None
    try:
        again = Restarts(restarts, RunDirectory(options.directory(spec)).saved)
        ranks = trainers + resources.preprocessors
        launch = LocalLaunch(ranks, options.arguments(trainers), size, variables, again, in_place)
    except LaunchError as error:
        _bad_input(str(error))
    return launch.run()


def _changes(
    trainers: int | None, preprocessors: int | None, policy: str | None, settings: list[str] | None
) -> list[str]:
    """All options that change the spec, as `--set` texts; explicit ones come last and win."""
    changes = []
    if trainers is not None:
        changes.append(f"resources.trainers={trainers}")
    if preprocessors is not None:
        changes.append(f"resources.preprocessors={preprocessors}")
    if policy is not None:
        changes += [f"policy.name={json.dumps(policy)}", "policy.parameters={}"]  # restart and margin stay
    return changes + list(settings or [])


def _part(text: str | None) -> tuple[int, int] | None:
    """`2/4` is the second of four parts."""
    if text is None:
        return None
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        _bad_input(f"--part {text}: write I/K, such as 2/4 for the second of four parts")
    return int(number), int(parts)


def _shape(text: str | None) -> tuple[int, ...] | None:
    """`3x4` is three nodes of four devices; `4,4,2` names each node's."""
    if text is None:
        return None
    try:
        if "x" in text:
            nodes, devices = (int(part) for part in text.split("x"))
            shape = (devices,) * nodes
        else:
            shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        _bad_input(
            f"--cluster {text}: nodes x devices of each, such as 3x4, or the devices of each node, such as 4,4,2"
        )
    return shape


def _load(spec: Path, changes: list[str]):  # type: ignore[no-untyped-def]
    """The spec, or the end of the program with all that is wrong with it."""
    with _people():
        from fleet.spec import load

        return load(spec, changes)


class _people:
    """Errors that a person can mend end the program with exit code 2 and their text alone."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError):
            _bad_input(str(error))


def _bad_input(text: str) -> NoReturn:
    print(f"fleet: {text}", file=sys.stderr, flush=True)
    sys.exit(2)
