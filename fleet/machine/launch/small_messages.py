"""Small messages that nobody waits for: Open MPI sends copies of them through shared memory."""

from __future__ import annotations

import os

_LARGEST = "49152"
"""Bytes of a small message, with MPI's header."""
_VARIABLES = {
    "OMPI_MCA_btl_sm_flags": "send",
    "OMPI_MCA_btl_sm_eager_limit": _LARGEST,
    "OMPI_MCA_btl_sm_rndv_eager_limit": _LARGEST,
    "OMPI_MCA_btl_sm_max_send_size": _LARGEST,
}
"""Open MPI's own: "send,inplace", 4096, 32768 and 32768."""


def copy_small_messages() -> None:
    """Ask Open MPI, before it starts, to copy small messages instead of lending their memory to the receiver.

    A send of lent memory is complete only once the receiver has looked, which takes milliseconds where it computes: a
    member that sends its buffers would wait as long. What is asked for in variables already stays.
    """
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
