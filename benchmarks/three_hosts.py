"""What crosses the network when several hosts read the same epoch: virtual hosts on one machine, real MPI over TCP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.shared_epoch import Epoch, Outcome, digest_alone
from benchmarks.virtual_hosts import virtual_hosts, why_not

__all__ = ["measure", "run_epoch"]

ROOT = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 240


def measure(
    hosts: int = 3,
    preprocessors: int = 1,
    readers_per_host: int = 2,
    images: int = 2000,
    side: int = 64,
    epochs: int = 1,
    kept: bool = False,
) -> dict[str, Any]:
    """Let all ranks of all hosts read one epoch of images of side x side x 3 bytes, or several.

    With `kept`, preprocessors keep what they have read; together they have room for all of it.

    The bytes are those of each host's network interface, so the launcher's and MPI's own messages, TCP's headers and
    acknowledgements are in them. Virtual interfaces carry up to 64 KiB in one packet, so headers are fewer than on a
    wire, where TCP over Ethernet frames of 1,500 bytes would add 4.6 % to any figure.

    Returns:
        samples, samples_made (by all preprocessors), decoded_once (samples decoded exactly once in all),
        data_bytes (of the epoch), right_bytes (readers that got what one data set alone makes), readers, nodes (as
        MPI sees them), seconds, and hosts: for each its bytes_in, bytes_out, in_ratio and out_ratio (to data_bytes),
        slots_in and slots_out. Where virtual hosts cannot be made: skipped alone, the reason.
    """
    reason = why_not()
    if reason is not None:
        return {"skipped": reason}
    epoch = Epoch(images, side, preprocessors, epochs=epochs, kept=kept)
    with virtual_hosts(hosts) as cluster:
        before = cluster.traffic()
        outcome = run_epoch(cluster.mpiexec(readers_per_host), epoch)
        crossed = {name: bytes_ - before[name] for name, bytes_ in cluster.traffic().items()}
    alone = digest_alone(epoch)
    return {
        "samples": epoch.samples,
        "pictures": images,
        "samples_made": outcome.samples_made,
        "decoded_once": outcome.times_decoded.get(1, 0),
        "data_bytes": outcome.data_bytes,
        "readers": len(outcome.digests),
        "right_bytes": outcome.digests.count(alone),
        "nodes": outcome.nodes,
        "seconds": outcome.seconds,
        "hosts": [
            {
                "name": name,
                "bytes_in": bytes_.received,
                "bytes_out": bytes_.sent,
                "in_ratio": bytes_.received / outcome.data_bytes,
                "out_ratio": bytes_.sent / outcome.data_bytes,
                "slots_in": received.slots,
                "slots_out": sent.slots,
            }
            for (name, bytes_), received, sent in zip(crossed.items(), outcome.received, outcome.sent)
        ],
    }


def run_epoch(launch: list[str], epoch: Epoch) -> Outcome:
    """Run the epoch in ranks that `launch` starts.

    Raises:
        RuntimeError: the job failed; the text is what it wrote.
    """
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    program = [sys.executable, "-m", "mpi4py", "-m", "benchmarks.shared_epoch", json.dumps(asdict(epoch))]
    done = subprocess.run(
        [*launch, *program], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    if done.returncode != 0:
        raise RuntimeError(f"the job ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return Outcome.from_json(done.stdout.strip().splitlines()[-1])
