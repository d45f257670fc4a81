"""torch's own watchdogs over NCCL and RCCL, which end a process that waits too long: here our time-outs come first.

Ours say on whom a member waits, and let the others go on.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_NO_HANDLING = "0"  # torch's ErrorHandlingMode; one that ends messages and not the process passes them off as complete
_HEARTBEATS = 2.0  # our time-out, this often, without a sign of torch's watchdog: then something is stuck for good


def speak_before_nccl(timeout: float, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what torch reads when a process group over NCCL is made; what the user has set stays.

    timeout: seconds after which a wait of ours gives up.
    """
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", _NO_HANDLING)
    environment.setdefault("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", str(int(_HEARTBEATS * timeout) + 60))
