"""Makes torch know the device "rig". With this package's folder on PYTHONPATH, `import torch` does it.

What a process is told by its environment (see source/settings.h):

    RIG_SCHEDULE    prompt, main-late, side-late, both-late, random:SEED: how late streams run; both-late:2 is by 2 s
    RIG_DEVICES     how many devices there are (4);  RIG_MEGABYTES: the memory of each (8192)
    RIG_FORBID      devices that it may not touch, as 0,2;  others: all but the first that it touches
    RIG_ORDER=group let the communicators of a device send beside each other, not one after another
    RIG_COMMUNICATORS     a file to which each member of a communicator writes its process and their number
    RIG_CUT         the member of each communicator that reaches no other
    RIG_MULTIPROCESSORS   how many each says it has (108)
    RIG_STRICT=0    let a thread work on a device that it did not select
    RIG_GENERATOR=host    draw from the host's generator, so that dropout has the CPU's bits
"""

from __future__ import annotations

import atexit

import torch

from . import _C, communication, device_module

NAME = "rig"

schedule = _C.schedule
pinned_bytes = _C.pinned_bytes


def counts(reset: bool = True) -> dict[str, int]:
    """What the devices have been asked to do since the last reset: kernels, syncs, copies and bytes by direction."""
    taken: dict[str, int] = _C.counts(reset)
    return taken


def rules(strict: bool = True, one_device: bool = False, forbidden: tuple[int, ...] = ()) -> None:
    """Set what is refused, in this process."""
    _C.rules(strict, one_device, list(forbidden))


def memory(device: int) -> dict[str, int]:
    """Bytes: used, peak, reserved; and blocks whose other users are not through: deferred."""
    figures: dict[str, int] = _C.memory(device)
    return figures


def autoload() -> None:
    """Called by torch at its import; what is to be done, the import of this package has done."""


def _register() -> None:
    torch.utils.rename_privateuse1_backend(NAME)  # type: ignore[attr-defined]
    torch._register_device_module(NAME, device_module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)  # type: ignore[attr-defined]
    communication.register()
    atexit.register(_C.end_all_streams)


_register()
