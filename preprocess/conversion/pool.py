"""Makes blocks in worker processes and gives them back in order."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from preprocess.conversion.block import Block, BlockMaker, MadeBlock
from preprocess.conversion.errors import ConversionFailure
from preprocess.files.modules import importable_folders, safe_path, spawned

if TYPE_CHECKING:
    from multiprocessing.context import SpawnContext

#: Blocks that may be made and wait for one before them, for each worker.
_AHEAD = 4


def made_blocks(
    maker: BlockMaker, blocks: Iterable[Block], workers: int, patience: float
) -> Iterator[tuple[Block, MadeBlock] | None]:
    """Make the blocks and yield each with its block, in their order, whichever process makes them and when.

    Args:
        maker: makes them.
        blocks: which.
        workers: processes that make them; 1 for this process alone.
        patience: seconds after which None is yielded if there is nothing else, so that the caller can do something.

    Raises:
        ConversionFailure: a worker died.
        DataSpecError, OSError: what a worker raised.
    """
    if workers <= 1:
        yield from ((block, maker(block)) for block in blocks)
        return
    pool = _Pool(maker, workers)
    try:
        yield from pool.run(blocks, patience)
    finally:
        pool.end()


class _Pool:
    """Workers, each at the end of a pipe: one whose parent dies reads the end of the pipe and ends too."""

    def __init__(self, maker: BlockMaker, workers: int) -> None:
        context = get_context("spawn")  # a fork would share the sources' files, and the locks of threads
        self._workers = [_Worker(context, maker) for _ in range(workers)]

    def run(self, blocks: Iterable[Block], patience: float) -> Iterator[tuple[Block, MadeBlock] | None]:
        """See `made_blocks`."""
        waiting = iter(blocks)
        order: deque[Block] = deque()
        made: dict[Block, MadeBlock] = {}
        idle = deque(self._workers)
        busy: dict[Connection, tuple[_Worker, Block]] = {}
        while True:
            while idle and len(order) < _AHEAD * len(self._workers) and (block := next(waiting, None)) is not None:
                worker = idle.popleft()
                worker.tell(block)
                busy[worker.pipe] = worker, block
                order.append(block)
            if not order:
                return
            ready = wait(list(busy), patience)
            if not ready:
                yield None
            for pipe in ready:
                assert isinstance(pipe, Connection)
                worker, block = busy.pop(pipe)
                made[block] = worker.answer(block)
                idle.append(worker)
            while order and order[0] in made:
                yield order[0], made.pop(order.popleft())

    def end(self) -> None:
        """End the workers, whatever they do."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()


class _Worker:
    """One process, and this end of its pipe."""

    def __init__(self, context: SpawnContext, maker: BlockMaker) -> None:
        self.pipe, other = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_work, args=(other, maker, importable_folders()), daemon=True
        )
        with safe_path():
            self.process.start()
        other.close()

    def tell(self, block: Block) -> None:
        try:
            self.pipe.send(block)
        except OSError:
            raise self._died(block) from None

    def answer(self, block: Block) -> MadeBlock:
        try:
            found = self.pipe.recv()
        except (EOFError, OSError):
            raise self._died(block) from None
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, MadeBlock)
        return found

    def _died(self, block: Block) -> ConversionFailure:
        self.process.join(timeout=10)
        code = self.process.exitcode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        return ConversionFailure(
            f"a worker {how} at the samples {block.start} to {block.stop - 1}; if memory ran out, lower --workers; "
            "what was done is kept: give the same command again to go on"
        )


def _work(pipe: Connection, maker: BlockMaker, folders: Sequence[str]) -> None:
    """Make the blocks that come through the pipe until it ends; a person's modules are found in these folders."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # terminals and batch systems signal all
        signal.signal(number, signal.SIG_IGN)  # the parent decides
    with spawned(folders), suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        while True:
            block = pipe.recv()
            try:
                answer: object = maker(block)
            except Exception as cause:
                answer = _sendable(cause)
            pipe.send(answer)


def _sendable(cause: Exception) -> Exception:
    """An error that means the same to the parent: some cannot be rebuilt there."""
    if isinstance(cause, OSError) and type(cause).__module__ == "builtins":
        return cause
    return ConversionFailure(f"{type(cause).__name__}: {cause}")
