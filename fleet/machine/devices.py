"""Devices of this machine: how many there are, whether torch sees them, the cores near them, and usable memory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from preprocess.files.memory import GROUPS, OWN, group_memories

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that show a process only some of its node's GPUs."""
FILES, BUS = Path("/dev"), Path("/sys/bus/pci/devices")
_COMPUTING = {"0x10de": ("0x0302",), "0x1002": ("0x0380", "0x1200")}
"""What GPUs of NVIDIA and AMD that drive no screen are on the bus: 3D controllers, accelerators and the like."""
_NO_DRIVER = ("", "nouveau")
ON_DEVICES = "--reduce device adds on accelerators that send to each other, and {why}; leave --reduce out, or give mpi"
"""What is told where they cannot."""


class NoSuchDevice(ValueError):
    """There is no device of the kind that was asked for; the text says what there is, and the mend."""


class HiddenGpus(NoSuchDevice):
    """The machine has GPUs, torch sees none of them, and nobody has asked for that."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        super().__init__(
            "this machine has GPUs, and torch sees none: its driver may be broken, or this torch built for CPUs "
            f"(`fleet doctor` says which){_mask_in_mask(environment)}; mend it, or set the device to cpu if training "
            "on CPUs is what you want"
        )


def _mask_in_mask(environment: Mapping[str, str]) -> str:
    """On AMD's GPUs a launcher may set two masks, of which the second counts within what the first leaves."""
    outer, inner = "ROCR_VISIBLE_DEVICES", ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    found = [f"{name}={environment[name]}" for name in (outer, *inner) if environment.get(name)]
    if len(found) < 2 or not environment.get(outer):
        return ""
    return f", or {found[1]} counts within the GPUs that {found[0]} leaves: unset one of the two"


def local_trainers(device: str, members: int = 1) -> int:
    """Count trainers: so many for each accelerator; without any, one for each core but the one that makes samples."""
    if device != "cpu":
        import torch

        if torch.accelerator.is_available():
            return int(torch.accelerator.device_count()) * members
    return max(1, (psutil.cpu_count(logical=False) or psutil.cpu_count() or 2) - 1)


def trainers_on_gpus(device: str, members: int = 1) -> int | None:
    """Return how many trainers this machine's GPUs take; None if it has none, or CPUs are to train."""
    if device == "cpu" or not has_gpus():  # torch is much to load for nothing
        return None
    import torch

    return int(torch.accelerator.device_count()) * members if torch.accelerator.is_available() else None


def has_gpus() -> bool:
    """Return whether the machine has GPUs, whatever torch says.

    Their driver has files for them; where it is not loaded, they are on the bus alone. Those that a driver has, and no
    file, are not for this container.
    """
    with_files = bool(list(FILES.glob("nvidia[0-9]*"))) or (FILES / "kfd").exists()
    return with_files or any(_lacks_its_driver(place) for place in BUS.glob("*"))


def _lacks_its_driver(place: Path) -> bool:
    """Return whether a PCI device is a GPU for computing that no driver for that has taken."""
    try:
        maker, kind = (place / "vendor").read_text().strip(), (place / "class").read_text()
    except OSError:
        return False
    driver = place / "driver"
    return kind[:6] in _COMPUTING.get(maker, ()) and (driver.resolve().name if driver.exists() else "") in _NO_DRIVER


def found_kind() -> str:
    """The type of the accelerators that torch finds here, or cpu.

    Raises:
        HiddenGpus: it finds none where there are some, and no mask hides all of them.
    """
    import torch

    if torch.accelerator.is_available():
        return str(torch.accelerator.current_accelerator()).partition(":")[0]
    masked = any(os.environ.get(name) in ("", "-1") for name in MASKS)
    if has_gpus() and not masked:
        raise HiddenGpus
    return "cpu"


def model_of(device: str) -> str:
    """What the maker calls a device, such as `NVIDIA A100-SXM4-80GB`; its kind where torch does not say, or sees none.

    Args:
        device: a torch device, or a kind of them: its first.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        return kind
    import torch

    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        return kind
    return str(getattr(module.get_device_properties(device), "name", kind))


def device_of(device: str, local: int) -> str:
    """The torch device of the `local`-th trainer of a node, as text: `cuda:1`, `cpu`.

    A mask that the launcher set (one visible device per rank) is accepted: the local index then wraps around it.

    Args:
        device: "auto", "cpu" or a torch device type.

    Raises:
        NoSuchDevice: torch finds none of this kind.
    """
    if device == "cpu":
        return "cpu"
    kind = found_kind()
    if device not in ("auto", kind):
        have = kind if kind != "cpu" else "cpu only"
        raise NoSuchDevice(f"torch finds {have} here; set the device to auto or cpu")
    if kind == "cpu":
        return kind
    import torch

    return f"{kind}:{local % torch.accelerator.device_count()}"


Cores = tuple[int, ...]

PCI = Path("/sys/bus/pci/devices")


def cores_near(properties: Any, folder: Path = PCI) -> Cores:
    """The cores that the system says are near a device; none where it does not say.

    Args:
        properties: what torch says of the device.
        folder: where the system describes its PCI devices.
    """
    with suppress(OSError, ValueError):
        return _listed((folder / pci_address(properties) / "local_cpulist").read_text())
    return ()


def pci_address(properties: Any) -> str:
    """A device's PCI address as the system writes it; "" where torch does not say."""
    bus = getattr(properties, "pci_bus_id", None)
    if isinstance(bus, int):
        domain, place = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_device_id", 0)
        return f"{domain:04x}:{bus:02x}:{place:02x}.0"
    return str(bus or "").lower()


def settle_cores(
    everyone: Callable[[dict[str, Any]], Sequence[Mapping[str, Any]]],
    rank: int,
    cores: Sequence[Sequence[int]],
    near: Sequence[Sequence[int]],
    nodes: Sequence[int],
) -> list[Cores]:
    """The cores of each rank, once trainers have those near their devices; all stay where they are if one cannot move.

    Args:
        everyone: gives what all ranks give it, in their order; all call it at once.
        rank: this one.
        cores, near, nodes: as for `near_first`.
    """
    before = [tuple(each) for each in cores]
    after = near_first(before, [tuple(each) for each in near], nodes)
    if after == before:
        return before
    moved = after[rank] == before[rank] or bind(after[rank])
    if all(answer["moved"] for answer in everyone({"moved": moved})):
        return after
    bind(before[rank])
    return before


def near_first(cores: Sequence[Cores], near: Sequence[Cores], nodes: Sequence[int]) -> list[Cores]:
    """The cores that each rank should have, so that trainers compute near their devices.

    Ranks of a node that have cores of their own exchange them, as many for as many. Where ranks share cores, a trainer
    keeps those near its device, unless these are less than its part.

    Args:
        cores: each rank may use these now.
        near: what is near its device; ranks without one have none.
        nodes: the node of each rank.
    """
    given = list(cores)
    if not any(near):
        return given
    of_nodes: dict[int, list[int]] = defaultdict(list)
    for rank, node in enumerate(nodes):
        of_nodes[node].append(rank)
    for ranks in of_nodes.values():
        held = [core for rank in ranks for core in cores[rank]]
        if len(held) == len(set(held)):
            for size in {len(cores[rank]) for rank in ranks}:
                _exchange(given, near, [rank for rank in ranks if len(cores[rank]) == size])
        else:
            for rank in ranks:
                close = tuple(core for core in cores[rank] if core in near[rank])
                if close and len(close) * len(ranks) >= len(cores[rank]):
                    given[rank] = close
    return given


def _exchange(given: list[Cores], near: Sequence[Cores], ranks: Sequence[int]) -> None:
    """Hand the ranks' sets out again: the one with most cores near a device first, a rank's own before others."""
    sets = {rank: given[rank] for rank in ranks}
    wishes = [
        (-len(set(near[rank]) & set(sets[whose])), rank != whose, rank, whose) for rank in ranks for whose in ranks
    ]
    settled: set[int] = set()
    for _, _, rank, whose in sorted(wishes):
        if rank not in settled and whose in sets:
            given[rank] = sets.pop(whose)
            settled.add(rank)


def bind(cores: Cores) -> bool:
    """Let all threads of this process compute on these cores alone; whether the system lets them."""
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cores)
    except OSError:
        return False
    return tuple(sorted(os.sched_getaffinity(0))) == tuple(sorted(cores))


def _listed(text: str) -> Cores:
    """The numbers of a list as the system writes them: 0-3,8."""
    parts = [part.partition("-") for part in text.strip().split(",") if part]
    return tuple(core for first, _, last in parts for core in range(int(first), int(last or first) + 1))


def usable_memory(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return bytes: all of the node's, or what the control groups of this process (a container, a batch job) allow.

    Args:
        groups: where the control groups are mounted.
        own: the file that names this process's.
    """
    return min([psutil.virtual_memory().total, *(group.limit for group in group_memories(groups, own))])
