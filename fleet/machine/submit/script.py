"""A batch script, filled in."""

from __future__ import annotations

import re
import resource
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import FunctionLoader, StrictUndefined, TemplateError, TemplateNotFound, TemplateSyntaxError
from jinja2.loaders import split_template_path
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fleet.machine.submit.shape import NodeShape, WallTime
from fleet.machine.submit.site import Site, SiteError
from preprocess.files.reading import read_text


@dataclass(frozen=True)
class BatchScript:
    """What a batch script says.

    Attributes:
        site: where it runs.
        shape: nodes, and the ranks of each.
        time: length of the allocation.
        name: the job's name.
        command: what every rank executes.
        folder: in which, and where the script is submitted: schedulers put the log there.
        run_directory: where it shows that the run has got on; of a part of the jobs, without the part's suffix.
        path: where the script will be, for one that submits itself again.
        account, queue: empty for the site's default.
        setup: lines before the run, after the site's.
        environment: variables, after the site's.
        inherited: names of variables whose values come from the environment in which the script is submitted.
        warning_seconds: how long before the end the ranks are told.
        parts: tasks of a job array, each of which profiles a part of the jobs; 0: it is none.
    """

    site: Site
    shape: NodeShape
    time: WallTime
    name: str
    command: Sequence[str]
    folder: Path
    run_directory: Path
    path: Path
    account: str = ""
    queue: str = ""
    setup: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    inherited: tuple[str, ...] = ()
    warning_seconds: int = 180
    parts: int = 0


_PART = {"slurm": "SLURM_ARRAY_TASK_ID", "lsf": "LSB_JOBINDEX", "pbs": "PBS_ARRAY_INDEX"}
_JOB = {
    "slurm": '"$SLURM_JOB_ID"',
    "lsf": '"$LSB_JOBID"',
    "pbs": '"$PBS_JOBID"',
    "flux": '"${FLUX_JOB_ID:-$(flux getattr jobid)}"',  # a batch script is not told it everywhere
}
_TEMPLATES = Path(str(files("batch_scripts")))
_MOST_BYTES, _MOST_MEMORY, _MOST_SECONDS = 1 << 20, 512 << 20, 10  # of a template and what comes of it
_ACCOUNT = re.compile(r"\w[\w.,:@+/=-]*")


def script_text(script: BatchScript, template: Path | None = None) -> str:
    """The script's text.

    Args:
        template: one of the user's own; else the template of the site's scheduler.

    Raises:
        SiteError: the template cannot be read or filled in, the scheduler has no job arrays, or a batch script cannot
            say what it should.
    """
    _check_words(script)
    if script.parts and script.site.scheduler not in _PART:
        raise SiteError(
            f"--array {script.parts}: {script.site.scheduler} has no job arrays of batch scripts; submit each part by "
            f"itself, with the options -- --part 1/{script.parts}"
        )
    name = template.name if template else f"{script.site.scheduler}.sh.j2"
    try:
        return _filled_in(name, [*([template.parent] if template else []), _TEMPLATES], _values(script))
    except TemplateNotFound as error:
        raise SiteError(f"--template {template}: there is no template {error}") from None
    except OSError as error:
        raise SiteError(f"--template {error.filename}: {error.strerror}") from None
    except MemoryError:
        raise SiteError(f"--template {template or name}: it takes more than {_MOST_MEMORY >> 20} MB") from None
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        place = f" (line {error.lineno})" if isinstance(error, TemplateSyntaxError) else ""
        raise SiteError(f"--template {template or name}: {str(error).splitlines()[0]}{place}") from None


def _filled_in(name: str, folders: Sequence[Path], values: Mapping[str, object]) -> str:
    """A template's text. What it says reaches the values alone, and none of Python's objects through them."""

    def load(part: str) -> str | None:
        for folder in folders:
            path = Path(folder, *split_template_path(part))
            if path.exists():
                return read_text(path, _MOST_BYTES)
        return None

    environment = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(load), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    text = ""
    with _bounded():
        for part in environment.get_template(name).generate(values):
            text += part
            if len(text) > _MOST_BYTES:
                raise ValueError(f"the script has more than {_MOST_BYTES:,} characters")
    return text


@contextmanager
def _bounded() -> Iterator[None]:
    """Let a template that never ends, or fills the memory, be refused."""

    def stop(*_: object) -> None:
        raise ValueError(f"it is not filled in within {_MOST_SECONDS} s")

    usual, most = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_MOST_SECONDS)
    try:
        room = [limit for limit in (taken + _MOST_MEMORY, usual, most) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(room), most))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (usual, most))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _check_words(script: BatchScript) -> None:
    """Refuse what would end its line in a script, or be more than one word to the scheduler."""
    for option, word in (("--account", script.account), ("--queue", script.queue)):
        if word and _ACCOUNT.fullmatch(word) is None:
            raise SiteError(f"{option} {word!r}: give one word of letters, digits and _ . , : @ + / = -")
    named: list[tuple[str, object]] = [("the command", word) for word in script.command]
    named += [("the folder", script.folder), ("--script", script.path), ("the run directory", script.run_directory)]
    for what, value in reversed(named):
        if not str(value).isprintable():
            raise SiteError(f"{what} {str(value)!r}: a batch script cannot hold control characters; give another name")


def _values(script: BatchScript) -> dict[str, object]:
    shape, site = script.shape, script.site
    own = f'."$part-of-{script.parts}"' if script.parts else ""  # of the tasks of an array
    return {
        "title": f"A fleet run on {shape.nodes} nodes: {site.title or site.scheduler}",
        "name": script.name,
        "nodes": shape.nodes,
        "gpus_per_node": shape.gpus,
        "ranks_per_node": shape.ranks_per_node,
        "ranks": shape.nodes * shape.ranks_per_node,
        "cores_per_rank": shape.cores,
        "time": script.time,
        "warning_seconds": script.warning_seconds,
        "account": script.account,
        "queue": script.queue,
        "qos": site.qos,
        "directives": site.directives,
        "launch": site.launch,
        "chunk": site.chunk,
        "setup": (*site.setup, *script.setup),
        "inherited": script.inherited,
        "environment": {k: shlex.quote(v) for k, v in {**site.environment, **dict(script.environment)}.items()},
        "folder": shlex.quote(str(script.folder)),
        "run_directory": shlex.quote(str(script.run_directory)) + own,
        "log": script.name,
        "job": _JOB[site.scheduler],
        "script": shlex.quote(str(script.path)),
        "command": shlex.join(script.command) + (f' --part "$part/{script.parts}"' if script.parts else ""),
        "parts": script.parts,
        "part_variable": _PART.get(site.scheduler, ""),
    }
