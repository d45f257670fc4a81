"""What people should know of orders that go by blocks: how they are laid out, and where blocks are read twice."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.report.wording import readable_bytes
from fleet.workers.runtime import Runtime


def described_orders(runtime: Runtime) -> Iterator[str]:
    """A sentence on each data set whose order goes by blocks."""
    for name, facts in runtime.facts.items():
        blocks = facts.blocks
        if blocks is not None:
            size = facts.samples / blocks.blocks
            yield (
                f"order of {name}: {blocks.blocks:,} blocks of {size:,.0f} samples on the average, of which "
                f"{blocks.strata} from all over the data are mixed at a time"
            )


def order_problems(runtime: Runtime, preprocessors: int) -> Iterator[str]:
    """Where blocks are read more than once in an epoch."""
    for name, facts in runtime.facts.items():
        blocks = facts.blocks
        if blocks is None:
            continue
        if blocks.strata < preprocessors:
            yield (
                f"data.{name}: {blocks.strata} blocks are mixed at a time, and there are {preprocessors} "
                "preprocessors, each of which then reads all blocks; let order.window be at least "
                f"{preprocessors}, or have more blocks"
            )
        need = blocks.strata * facts.block_bytes
        if need > facts.cache_bytes:
            fits = facts.cache_bytes // facts.block_bytes
            smaller = f", or order.window: {fits}" if fits >= preprocessors else ""
            yield (
                f"data.{name}: the {blocks.strata} blocks of a window take {readable_bytes(need)}, and a preprocessor, "
                f"which may work alone, keeps {readable_bytes(facts.cache_bytes)} of them, so blocks may be read again "
                f"and again; give the source cache: {-(-need // 2**20)} (MiB){smaller}"
            )
