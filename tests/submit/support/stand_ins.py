"""bsub, jsrun, qsub, mpiexec (PALS), flux, srun and scontrol, for tests where none of them is: they take the real
programs' options, refuse what those refuse, and run the script and its ranks on this machine.

Called by a link of the program's name. STAND_IN_NODE says what a node has, as "GPUS,CORES"; STAND_IN_MPIEXEC is the
launcher that starts the ranks; STAND_IN_LOG gets a JSON line for each call. Where STAND_IN_QUEUE is set, a script that
is submitted is noted there and waits for ever.

Sources: IBM Spectrum LSF 10.1 command reference (bsub), IBM JSM (jsrun), OpenPBS 23 reference (qsub), HPE PALS 1.2
(mpiexec), flux-core 0.5x man pages (flux, flux-batch, flux-run), Slurm 23 man pages (srun, scontrol).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

WARM = "FLEET_WARM"
"""The variable by which the tests' own processes are forked (see tests/warm); no batch system knows it."""


def refuse(text: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)
    sys.exit(255)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(message)


def parser() -> Parser:
    return Parser(prog=Path(sys.argv[0]).name, allow_abbrev=False)


def node() -> tuple[int, int]:
    gpus, cores = os.environ["STAND_IN_NODE"].split(",")
    return int(gpus), int(cores)


def note(**facts: object) -> None:
    with open(os.environ["STAND_IN_LOG"], "a") as file:
        file.write(json.dumps({"program": Path(sys.argv[0]).name, **facts}) + "\n")


def directives(text: str, mark: str) -> list[str]:
    """The words of a script's directives, which end at its first command."""
    words = []
    for line in text.splitlines():
        if line.startswith(mark):
            words += shlex.split(line[len(mark) :])
        elif line.strip() and not line.startswith("#"):
            break
    return words


def run_script(text: str, **variables: str) -> int:
    if "STAND_IN_QUEUE" in os.environ:
        note(submitted=text, chain=os.environ.get("FLEET_CHAIN", ""))
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(text)
        file.flush()
        return subprocess.run(["bash", file.name], env={**os.environ, **variables}).returncode


def start(ranks: int, command: Sequence[str]) -> NoReturn:
    launcher = shlex.split(os.environ["STAND_IN_MPIEXEC"])
    os.execvp(launcher[0], [*launcher, "-n", str(ranks), *command])


def matching(text: str, form: str, option: str) -> str:
    if not re.fullmatch(form, text):
        refuse(f"{option}: illegal value {text!r}")
    return text


def bsub() -> int:
    text = sys.stdin.read()
    options = parser()
    options.add_argument("-J")
    options.add_argument("-nnodes", type=int, required=True)
    options.add_argument("-W", required=True)
    options.add_argument("-o")
    options.add_argument("-e")
    options.add_argument("-wa", choices=["USR1", "USR2", "TERM", "INT", "URG", "CHKPNT"])
    options.add_argument("-wt")
    options.add_argument("-P")
    options.add_argument("-q")
    options.add_argument("-alloc_flags")
    found = options.parse_args(directives(text, "#BSUB"))
    matching(found.W, r"(\d+:)?\d+", "-W")
    if (found.wa is None) != (found.wt is None):
        refuse("-wa and -wt must be specified together")
    matching(found.wt or "1", r"(\d+:)?\d+", "-wt")
    note(nodes=found.nnodes)
    print("Job <4711> is submitted to default queue <batch>.", flush=True)
    return run_script(text, LSB_JOBID="4711", STAND_IN_NODES=str(found.nnodes))


def jsrun() -> NoReturn:
    options = parser()
    options.add_argument("-n", "--nrs", type=int, required=True)
    options.add_argument("-r", "--rs_per_host", type=int, default=1)
    options.add_argument("-a", "--tasks_per_rs", type=int, default=1)
    options.add_argument("-g", "--gpu_per_rs", type=int, default=0)
    options.add_argument("-c", "--cpu_per_rs", type=int, default=1)
    options.add_argument("-b", "--bind", default="packed:1")
    options.add_argument("-d", "--launch_distribution", default="packed")
    options.add_argument("-S", "--smpiargs")
    options.add_argument("command", nargs=argparse.REMAINDER)
    found = options.parse_args()
    gpus, cores = node()
    matching(found.bind, r"none|rs|(proportional-)?packed:\d+(:smt:[1-4])?", "--bind")
    matching(found.launch_distribution, r"packed|cyclic|plane:\d+", "--launch_distribution")
    if found.nrs > found.rs_per_host * int(os.environ["STAND_IN_NODES"]):
        refuse("Error: It is not possible to use all of the requested resource sets on the allocated hosts")
    if found.rs_per_host * found.gpu_per_rs > gpus or found.rs_per_host * found.cpu_per_rs > cores:
        refuse("Error: Resource set does not fit on a host")
    per_task = found.bind.partition("packed:")[2].partition(":")[0]
    if per_task and int(per_task) * found.tasks_per_rs > found.cpu_per_rs:
        refuse(f"Error: {found.tasks_per_rs} tasks packed by {per_task} need more than {found.cpu_per_rs} cores")
    note(ranks=found.nrs * found.tasks_per_rs, gpus=found.gpu_per_rs, cores=found.cpu_per_rs)
    start(found.nrs * found.tasks_per_rs, found.command)


def qsub() -> int:
    line = parser()
    line.add_argument("-v", default="")
    line.add_argument("script")
    given = line.parse_args()
    handed_on = given.v.split(",") if given.v else []
    for name in [name for name in os.environ if name.startswith("FLEET_") and name not in (*handed_on, WARM)]:
        del os.environ[name]  # a job gets no variables but those that are named
    text = Path(given.script).read_text()
    options = parser()
    options.add_argument("-N")
    options.add_argument("-l", action="append", default=[])
    options.add_argument("-o")
    options.add_argument("-j", choices=["oe", "eo", "n"])
    options.add_argument("-r", choices=["y", "n"])
    options.add_argument("-A")
    options.add_argument("-q")
    found = options.parse_args(directives(text, "#PBS"))
    matching(found.N or "x", r"[A-Za-z0-9][\w.+-]{0,229}", "-N")
    nodes = 0
    for wanted in found.l:
        name, _, value = wanted.partition("=")
        if name == "select":
            nodes = int(matching(value, r"\d+(:\w+=[\w.]+)*", "-l select").partition(":")[0])
        elif name == "place":
            matching(value, r"(free|pack|scatter|vscatter)(:(excl|exclhost|shared))?", "-l place")
        elif name == "walltime":
            matching(value, r"(\d+:){0,2}\d+", "-l walltime")
        elif name != "filesystems":
            refuse(f"Unknown resource: {name}")
    if not nodes:
        refuse("Job violates queue and/or server resource limits: no select")
    note(nodes=nodes)
    print("4711.pbs-01", flush=True)
    return run_script(text, PBS_JOBID="4711.pbs-01", STAND_IN_NODES=str(nodes))


def mpiexec() -> NoReturn:
    options = parser()
    options.add_argument("-n", "--np", type=int, required=True)
    options.add_argument("--ppn", type=int)
    options.add_argument("-d", "--depth", type=int, default=1)
    options.add_argument("--cpu-bind", default="none")
    options.add_argument("--gpu-bind", default="none")
    options.add_argument("--env", action="append")
    options.add_argument("command", nargs=argparse.REMAINDER)
    found = options.parse_args()
    matching(found.cpu_bind, r"none|depth|core|thread|numa|socket|list:[\d:,-]+|mask:[\w,]+", "--cpu-bind")
    per_node = found.ppn or found.np
    if found.np > per_node * int(os.environ["STAND_IN_NODES"]):
        refuse(f"{found.np} ranks at {per_node} a node need more nodes than the allocation has")
    if per_node * found.depth > node()[1]:
        refuse(f"cpu depth {found.depth} of {per_node} ranks exceeds the cpus of a node")
    note(ranks=found.np)
    start(found.np, found.command)


def flux() -> int:
    kind = sys.argv.pop(1)
    if kind == "--parent":
        kind = sys.argv.pop(1)
    elif kind == "batch" and "STAND_IN_NODES" in os.environ:
        refuse("the job would begin and end inside of this one")
    options = parser()
    options.add_argument("-N", "--nodes", type=int)
    options.add_argument("-n", "--ntasks", type=int)
    options.add_argument("-x", "--exclusive", action="store_true")
    options.add_argument("-t", "--time-limit", default="0s")
    options.add_argument("-o", "--setopt", action="append", default=[])
    options.add_argument("--output")
    options.add_argument("--job-name")
    options.add_argument("--signal")
    options.add_argument("-B", "--bank")
    options.add_argument("-q", "--queue")
    if kind == "run":
        options.add_argument("-c", "--cores-per-task", type=int)
        options.add_argument("-g", "--gpus-per-task", type=int)
        options.add_argument("command", nargs=argparse.REMAINDER)
        found = options.parse_args()
    else:
        text = Path(sys.argv[1]).read_text()
        found = options.parse_args(directives(text, "#flux:"))
        matching(found.signal or "USR1@1s", r"(SIG)?\w+@\d+(\.\d+)?[smhd]?", "--signal")
    matching(found.time_limit, r"\d+(\.\d+)?(ms|s|m|h|d)?", "--time-limit")
    if found.exclusive and not found.nodes:
        refuse("--exclusive can only be set with a node count")
    for option in found.setopt:
        if option.partition("=")[0] not in ("cpu-affinity", "gpu-affinity", "mpi", "mpibind", "exit-timeout"):
            refuse(f"unknown shell option {option}")
    if kind == "batch":
        note(nodes=found.nodes)
        print("ƒ2dTbDJgPh", flush=True)
        return run_script(text, FLUX_JOB_ID="ƒ2dTbDJgPh", STAND_IN_NODES=str(found.nodes))
    if found.nodes > int(os.environ["STAND_IN_NODES"]):
        refuse("unsatisfiable request")
    if found.ntasks < found.nodes:
        refuse("node count must not be greater than task count")
    note(ranks=found.ntasks)
    start(found.ntasks, found.command)


def srun() -> NoReturn:
    options = parser()
    options.add_argument("--mpi", choices=["pmix", "pmi2"])
    options.add_argument("--kill-on-bad-exit", type=int, choices=[0, 1])
    options.add_argument("--cpus-per-task", type=int)
    options.add_argument("command", nargs=argparse.REMAINDER)
    found = options.parse_args()
    note(ranks=1)
    start(1, found.command)


def scontrol() -> int:
    if sys.argv[1:] != ["requeue", os.environ["SLURM_JOB_ID"]]:
        refuse(f"invalid entity: {sys.argv[1:]}")
    note(submitted="", chain="")
    return 0


if __name__ == "__main__":
    sys.exit(globals()[Path(sys.argv[0]).name]())
