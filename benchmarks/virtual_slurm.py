"""A Slurm of several nodes on one machine, of the real daemons. Linux, root; packages as in PACKAGES.

    with virtual_slurm(3) as slurm:
        job = slurm.submit(script, folder)
        slurm.wait(job, "COMPLETED")

Each node is a virtual host (see `benchmarks.virtual_hosts`) with a slurmd; slurmctld and munge run on the host `login`.
Files are the machine's, so what each node needs for itself stands in its own /dev/shm. There are no cgroups: GPUs are
device files that nothing reads.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.virtual_hosts import LOGIN, NETWORK, VirtualCluster, virtual_hosts
from benchmarks.virtual_hosts import why_not as why_no_hosts

__all__ = ["PACKAGES", "SlurmError", "VirtualSlurm", "install", "virtual_slurm", "why_not"]

PACKAGES = ("slurm-wlm", "munge", "libpmix2", "iproute2")
PROGRAMS = {"slurmctld": "/usr/sbin/slurmctld", "slurmd": "/usr/sbin/slurmd", "munged": "/usr/sbin/munged"}
PATIENCE_SECONDS = 60.0
APT_SECONDS = 80.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")
POLL_SECONDS = 0.2

CONFIGURATION = """\
ClusterName=virtual
SlurmctldHost={login}({network}.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS=/dev/shm
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=3600
SlurmdTimeout={node_timeout}
SlurmctldTimeout=10
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
GresTypes=gpu
NodeName={nodes} CPUs={cpus} RealMemory=2000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=NO
"""


class SlurmError(RuntimeError):
    """The cluster cannot be made or does not do what was asked; the text says why."""


@dataclass(frozen=True)
class VirtualSlurm:
    """A cluster that takes jobs.

    Attributes:
        hosts: its nodes.
        folder: configuration and logs.
    """

    hosts: VirtualCluster
    folder: Path

    def call(self, *words: str, cwd: Path | None = None) -> str:
        """Run one of Slurm's programs on the login node; return what it prints. SlurmError if it fails."""
        done = subprocess.run(
            [*self.hosts.on(LOGIN), *words], env=self.environment(), cwd=cwd, capture_output=True, text=True,
            timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0:
            raise SlurmError(f"`{' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def environment(self) -> Mapping[str, str]:
        """Variables with which Slurm's programs find this cluster."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "PMIX_"))}
        return {**known, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def state(self, job: str) -> str:
        """A job's state in Slurm's words, such as PENDING, RUNNING, COMPLETED."""
        return self._of(job, "JobState")

    def restarts(self, job: str) -> int:
        """How often a job was requeued."""
        return int(self._of(job, "Restarts"))

    def exit_code(self, job: str) -> int:
        """What its script ended with."""
        return int(self._of(job, "ExitCode").partition(":")[0])

    def wait(self, job: str, *states: str, seconds: float = 300.0, poll: float = POLL_SECONDS) -> str:
        """Return the state once it is one of `states`; a job that waits for its turn after a requeue gets it at once.

        SlurmError, with the state, if it ends in another, or after so many seconds.
        """
        deadline, hurried = time.monotonic() + seconds, 0
        while (state := self.state(job)) not in states:
            if time.monotonic() > deadline or state in ENDED:
                raise SlurmError(f"job {job} is {state}, and not {' or '.join(states)}; waited {seconds:g} s at most")
            if state == "PENDING" and self._of(job, "Reason") == "BeginTime" and self.restarts(job) != hurried:
                hurried = self.restarts(job)
                self.call("scontrol", "update", f"jobid={job}", "StartTime=now+3")
            time.sleep(poll)
        return state

    def crash(self, node: str) -> None:
        """End a node with all that runs on it, as a power cut would."""
        (process,) = (host.process for host in self.hosts.hosts if host.name == node)
        os.kill(process, 9)

    def nodes_of(self, job: str) -> list[str]:
        """The nodes of a running job, that of its script first."""
        return self.call("scontrol", "show", "hostnames", self._of(job, "NodeList")).split()

    def _of(self, job: str, key: str) -> str:
        text = self.call("scontrol", "show", "job", "--oneliner", job)
        found = [word.partition("=")[2] for word in text.split() if word.startswith(f"{key}=")]
        return found[0] if found else ""


def why_not() -> str | None:
    """Why no such cluster can be made here and what would help, or None."""
    missing = [name for name, path in PROGRAMS.items() if not Path(path).exists()]
    if missing:
        return f"a virtual Slurm needs {', '.join(missing)} (apt-get install {' '.join(PACKAGES)})"
    return why_no_hosts()


def install() -> str | None:
    """Install what is missing, as root on Debian; return why that cannot be, or None."""
    if all(Path(path).exists() for path in PROGRAMS.values()):
        return None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"Slurm is not here, and only root on Debian can install it (apt-get install {' '.join(PACKAGES)})"
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *PACKAGES]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (command, ["apt-get", "update"], command):
        try:
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=APT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"`{' '.join(words[:2])}` has not ended for {APT_SECONDS:g} s"
        if words is command and done.returncode == 0:
            return None
    return f"apt-get could not install Slurm: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}"


@contextmanager
def virtual_slurm(nodes: int, cpus: int = 4, gpus: int = 0, node_timeout: int = 15) -> Iterator[VirtualSlurm]:
    """Make a cluster of nodes h1, h2 ... and take it away at the end, with all that runs on it.

    Args:
        cpus, gpus: what Slurm believes each node to have.
        node_timeout: seconds after which Slurm gives a silent node up.

    Raises:
        SlurmError: it does not come up. benchmarks.virtual_hosts.VirtualHostsError.
    """
    with ExitStack() as stack:
        hosts = stack.enter_context(virtual_hosts(nodes))
        folder = hosts.folder / "slurm"
        _write_configuration(folder, [host.name for host in hosts.hosts], cpus, gpus, node_timeout)
        _find_pmix()
        slurm = VirtualSlurm(hosts, folder)
        munge = ["--foreground", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
        munge += [
            f"--pid-file={folder}/munge.pid",
            f"--seed-file={folder}/munge.seed",
            f"--log-file={folder}/munge.log",
        ]
        stack.enter_context(_daemon(slurm, LOGIN, [PROGRAMS["munged"], *munge, "--force"]))
        configured = ["-D", "-f", str(folder / "slurm.conf")]
        stack.enter_context(_daemon(slurm, LOGIN, [PROGRAMS["slurmctld"], "-c", *configured]))
        for host in hosts.hosts:
            stack.enter_context(_daemon(slurm, host.name, [PROGRAMS["slurmd"], "-N", host.name, *configured]))
        _await_nodes(slurm, nodes)
        yield slurm


def _write_configuration(folder: Path, names: Sequence[str], cpus: int, gpus: int, node_timeout: int) -> None:
    (folder / "state").mkdir(parents=True)
    values = {
        "login": LOGIN,
        "network": NETWORK,
        "folder": folder,
        "nodes": ",".join(names),
        "cpus": cpus,
        "gpus": gpus,
    }
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**values, node_timeout=node_timeout))
    for number in range(gpus):
        os.mknod(folder / f"gpu{number}", 0o020666, os.makedev(1, 3))  # as /dev/null
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{gpus - 1}]\n" if gpus else "")
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o400)


def _find_pmix() -> None:
    """Debian's plugin loads libpmix.so, a name that only the package for developers has."""
    place = Path(f"/usr/lib/{platform.machine()}-linux-gnu/pmix2/lib")
    if (place / "libpmix.so.2").exists() and not (place / "libpmix.so").exists():
        (place / "libpmix.so").symlink_to("libpmix.so.2")


@contextmanager
def _daemon(slurm: VirtualSlurm, host: str, command: Sequence[str]) -> Iterator[None]:
    """A daemon on a host, in the foreground there."""
    with open(slurm.folder / f"{host}.{Path(command[0]).name}.output", "wb") as output:
        process = subprocess.Popen(
            [*slurm.hosts.on(host), *command], env=slurm.environment(), stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_nodes(slurm: VirtualSlurm, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    said = ""
    while time.monotonic() < deadline:
        try:
            said = slurm.call("sinfo", "--noheader", "--Node", "--format", "%T")
            if said.split().count("idle") == count:
                return
        except SlurmError as error:  # the controller is not there yet
            said = str(error)
        time.sleep(POLL_SECONDS)
    raise SlurmError(f"{count} nodes are not idle after {PATIENCE_SECONDS:g} s: {said}; see {slurm.folder}")
