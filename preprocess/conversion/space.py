"""Whether a converted file will fit on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from preprocess.conversion.errors import ConversionError
from preprocess.conversion.plan import ConversionPlan

#: Samples whose size is looked at, if their sizes differ.
_TRIED = 32


def check_space(plan: ConversionPlan, destination: Path, written: int) -> None:
    """Check that the rest of a conversion fits on the disk, `written` bytes being there already.

    Raises:
        ConversionError: it does not.
    """
    needed = expected_bytes(plan) - written
    free = shutil.disk_usage(destination.parent).free
    if needed > free:
        gib = 2**30
        rule = f"needs about {needed / gib:.2f} GiB more, and {destination.parent} has {free / gib:.2f} GiB free"
        raise ConversionError(str(destination), rule, "make room or choose another folder")


def expected_bytes(plan: ConversionPlan) -> int:
    """Return about how many bytes the file will have."""
    index = plan.total * (plan.row.itemsize + 8) * 2  # in the file, and in the record meanwhile
    return index + sum(_samples_bytes(plan, split) for split in range(len(plan.splits)))


def _samples_bytes(plan: ConversionPlan, split: int) -> int:
    """Bytes of a split's samples: known, or judged by some that are spread over it."""
    if plan.packing.sample_bytes is not None:
        return plan.lengths[split] * plan.packing.sample_bytes
    source = plan.maker.source(split)
    sizes = []
    for index in np.unique(np.linspace(0, len(source) - 1, _TRIED).astype(int)).tolist():
        try:
            content, _ = source.read(index)
            sizes.append(len(content) if plan.packing.encoding == "files" else len(plan.packing.pack(content).content))
        except Exception:  # whatever is wrong with it is said when its turn comes
            continue
    return int(np.mean(sizes) * len(source)) if sizes else 0
