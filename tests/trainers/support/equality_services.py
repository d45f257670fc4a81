"""The test's side of the two services that train: stock DDP and elastic trainers."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.trainers.support.equality_states import States
from tests.warm.starting import python_path

SUPPORT = Path(__file__).parent
PROGRAMS = SUPPORT.parent / "programs"
SECONDS = 240.0
PATIENCE = 20.0


def environment() -> dict[str, str]:
    """Of the programs; taken when they start, as the nursery is named in it."""
    return {
        **os.environ,
        "PYTHONPATH": python_path(),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def mpiexec(ranks: int) -> list[str] | None:
    """Return the command that starts `ranks` ranks, or None where there is no MPI."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True, env=environment()).stdout
    if "Open MPI" not in version and "open-mpi" not in version:
        return [found, "-n", str(ranks)]
    options = ["--oversubscribe", "--bind-to", "none", "--mca", "osc", "^ucx", "--mca", "pml", "ob1"]
    return [found, *options, "--mca", "btl", "self,sm,tcp", "-n", str(ranks)]


class ServiceEnded(RuntimeError):
    """A service's processes are gone."""


class Service:
    """A program that answers each line with a line; it starts at the first request, and again after its end."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.command, self.folder = list(command), folder
        self.requests = 0
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Mapping[str, Any]) -> str:
        """Return the answer. ServiceEnded if there is none, with what was said on standard error."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        begin = time.monotonic()
        while not select.select([process.stdout], [], [], 1)[0]:
            if time.monotonic() - begin > SECONDS:
                self.close()
                raise TimeoutError(f"no answer to {dict(request)} after {SECONDS:g} s")
        line = process.stdout.readline()
        if not line:
            self.close()
            raise ServiceEnded(self.log.read_text()[-3000:])
        return line.strip()

    def reply(self) -> Path:
        """Return a fresh name for the files of an answer."""
        self.requests += 1
        return self.folder / f"reply-{self.requests:05}"

    @property
    def log(self) -> Path:
        return self.folder / "errors.txt"

    def close(self) -> None:
        """End the program: it is told to, or else mpiexec is asked to end it, or else killed."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        with suppress(OSError):  # it may be gone
            process.stdin.write("null\n")  # mpiexec does not pass the end of its input on
            process.stdin.close()
        for end in (lambda: None, process.terminate, process.kill):  # mpiexec ends its ranks when it is asked to
            end()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
                break
        assert process.stdout is not None
        process.stdout.close()

    def _start(self) -> None:
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                self.command,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )


class StockDDP:
    """Stock DDP over gloo; what it made is kept, so that each job is trained once."""

    def __init__(self, folder: Path) -> None:
        self._service = Service([sys.executable, str(PROGRAMS / "equality_ddp.py")], folder)
        self._known: dict[tuple[str, int], States] = {}

    def states(self, task: str, ranks: int, steps: int) -> States:
        """Return the states after each step up to `steps`."""
        known = self._known.get((task, ranks), {})
        if str(steps) not in known:
            known = self._known[task, ranks] = self._train(task, ranks, steps)
        return known

    def _train(self, task: str, ranks: int, steps: int) -> States:
        reply = self._service.reply()
        answer = json.loads(self._service.ask({"task": task, "ranks": ranks, "steps": steps, "reply": str(reply)}))
        assert answer == "done", f"stock DDP of {task} in {ranks} processes: {answer}"
        of_ranks = [json.loads(Path(f"{reply}.{rank}").read_text()) for rank in range(ranks)]
        return {step: [states[step] for states in of_ranks] for step in of_ranks[0]}

    def close(self) -> None:
        self._service.close()


class Elastic:
    """Elastic trainers under mpiexec."""

    def __init__(self, folder: Path, command: Sequence[str], ranks: int) -> None:
        program = [*command, sys.executable, "-m", "mpi4py", str(PROGRAMS / "equality_elastic.py")]
        self._service = Service(program, folder)
        self.ranks = ranks

    def history(
        self,
        task: str,
        virtual_workers: int,
        segments: Sequence[Mapping[str, Any]],
        *,
        every: int = 0,
        kill: tuple[int, int] | None = None,
        folder: Path | None = None,
        broken: str | None = None,
    ) -> States:
        """Train a history; return the states that it showed. ServiceEnded, with the errors, if it came to nothing."""
        reply = self._service.reply()
        request = {
            "task": task,
            "virtual_workers": virtual_workers,
            "segments": list(segments),
            "folder": str(folder or reply.with_name(f"{reply.name}-checkpoints")),
            "reply": str(reply),
            "every": every,
            "kill": None if kill is None else list(kill),
            "broken": broken,
        }
        try:
            self._service.ask(request)
        except ServiceEnded as error:
            errors = [path.read_text() for path in sorted(reply.parent.glob(f"{reply.name}.error.*"))]
            raise ServiceEnded("\n".join(errors) or str(error)) from None
        parts = [json.loads(path.read_text()) for path in reply.parent.glob(f"{reply.name}.[0-9]*")]
        return {step: states for part in parts for step, states in part.items()}

    def close(self) -> None:
        self._service.close()
