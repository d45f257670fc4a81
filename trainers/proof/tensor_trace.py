"""Hashes of all that a training step computes, so that two runs can be compared to the first module that differs.

It is EasyScale's bitwise profiling tool (SC'23, section 4). Hooks on modules and tensors only look: no node is added to
autograd's graph (as `register_full_backward_hook` would, which can change the order in which gradients become ready).

A trace is a file of JSON lines: a header, then for every step the turns of the virtual workers in rank order, each in
the order of execution, then what they share. It does not depend on the number of trainers.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from preprocess.files.reading import open_file
from preprocess.files.writing import cause, make_folder, whole_file
from trainers.job.trainer import Trainer
from trainers.step.compute import BatchLoss, Compute, Training
from trainers.step.virtual_worker import VirtualWorker
from trainers.task.task import Batch

_FORMAT = 1
_HASH_BYTES = 16
_MOST_LINE_BYTES = 1 << 16  # a longer line is cut, and then no JSON
_KINDS = ("output", "grad-input", "grad-param", "reduced", "parameter")


class TensorTraceError(RuntimeError):
    """A trace cannot be written or read; the text names the file, the cause and the mend."""

    def __init__(self, path: Path, wrong: str, mend: str) -> None:
        super().__init__(f"{path}: {wrong}; {mend}")


@dataclass(frozen=True)
class TensorHash:
    """One thing that was computed.

    step: counted from the job's first, 0. worker: virtual rank; None for what all workers share.
    kind: "output" of a module; "grad-input", the loss's gradient with respect to an input of a module (summed over all
    that use it); "grad-param", one worker's gradient of a parameter, unscaled; "reduced", the gradient that the
    optimizer gets; "parameter", after the step.
    name: path of the module ("" is the model) or name of the parameter. call: how often it was seen before in the turn.
    hash: a digest of dtype, shape and every bit.
    """

    step: int
    worker: int | None
    kind: str
    name: str
    call: int
    hash: str

    @property
    def place(self) -> tuple[int, int | None, str, str, int]:
        """Which tensor it is, without its value."""
        return self.step, self.worker, self.kind, self.name, self.call


class Recorder:
    """Records the turns of one process's virtual workers, and the steps of its optimizer.

    events: the records since they were last taken away.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int = 0, shared: bool = True) -> None:
        """`step`: how many steps the job has done. shared: whether to record what all workers share, too."""
        self._model, self._step, self._shared = model, step, shared
        self._worker: int | None = None
        self._calls: Counter[tuple[str, str]] = Counter()
        self.events: list[TensorHash] = []
        optimizer.register_step_pre_hook(lambda *_: self._before_update())
        optimizer.register_step_post_hook(lambda *_: self._after_update())

    @contextmanager
    def turn(self, rank: int) -> Iterator[None]:
        """Record the forward and backward passes of virtual worker `rank` that are made inside."""
        self._worker = rank
        self._calls.clear()
        hooks = list(self._hooks())
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._worker = None
            self._calls.clear()

    def take(self) -> list[TensorHash]:
        """Return the events so far, and forget them."""
        events, self.events = self.events, []
        return events

    def _hooks(self) -> Iterator[Any]:
        for name, module in self._model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):
                yield module.register_forward_pre_hook(self._on_inputs(name), with_kwargs=True)
                yield module.register_forward_hook(lambda _, __, output, name=name: self._add("output", name, output))
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad:
                yield parameter.register_hook(self._on_gradient("grad-param", name))

    def _on_inputs(self, name: str) -> Callable[..., None]:
        def look(_: nn.Module, arguments: Any, named: Any) -> None:
            for tensor in _tensors((arguments, named)):
                if tensor.requires_grad and torch.is_grad_enabled():
                    tensor.register_hook(self._on_gradient("grad-input", name))

        return look

    def _on_gradient(self, kind: str, name: str) -> Callable[[Tensor], None]:
        return lambda gradient: self._add(kind, name, gradient)

    def _before_update(self) -> None:
        self._calls.clear()
        for name, parameter in self._model.named_parameters() if self._shared else ():
            if parameter.grad is not None:
                self._add("reduced", name, parameter.grad)

    def _after_update(self) -> None:
        for name, parameter in self._model.named_parameters() if self._shared else ():
            self._add("parameter", name, parameter)
        self._calls.clear()
        self._step += 1

    def _add(self, kind: str, name: str, value: Any) -> None:
        call = self._calls[kind, name]
        self._calls[kind, name] += 1
        self.events.append(TensorHash(self._step, self._worker, kind, name, call, digest(value)))


class TracedCompute:
    """A computation that a recorder watches; see `trainers.Compute`.

    recorder: to be set before the first step, as it needs the trainer's model.
    """

    recorder: Recorder

    def __init__(self, inner: Compute) -> None:
        self._inner = inner

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> BatchLoss | float:
        """Compute as the inner one does."""
        with self.recorder.turn(worker.rank):
            return self._inner.gradients(trainer, worker, batch)


class GroupTrace:
    """The trace of a job that a group trains: all members record, the master writes, after every step."""

    def __init__(self, trainer: Trainer, compute: TracedCompute, file: TraceFile | None) -> None:
        """`compute` is the trainer's; `file` is given on the master alone."""
        self._group, self._file = trainer.group, file
        recorder = Recorder(trainer.model, trainer.optimizer, trainer.steps, shared=trainer.group.is_master)
        self._recorder = compute.recorder = recorder

    def after_step(self) -> None:
        """Bring a step's events together; all members call it."""
        own = json.dumps([asdict(event) for event in self._recorder.take()])
        parts = [[TensorHash(**event) for event in json.loads(part)] for part in self._group.gather_bytes(own.encode())]
        if self._file is not None:
            self._file.add(merged_traces([iter(part) for part in parts]))

    def close(self) -> None:
        """Put the file in its place."""
        if self._file is not None:
            self._file.close()


def digest(value: Any) -> str:
    """Return a hash, hexadecimal, of dtype, shape and bits of every tensor in `value`, in order."""
    total = hashlib.blake2b(digest_size=_HASH_BYTES)
    for tensor in _tensors(value):
        host = tensor.detach().to("cpu").contiguous()
        total.update(f"{host.dtype} {tuple(host.shape)}".encode())
        total.update(host.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the dense tensors of nested tuples, lists, mappings and dataclasses, in order."""
    if isinstance(value, Tensor):
        if value.layout == torch.strided:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))


class TraceFile:
    """A trace that is being written; it appears under its name when it is complete and on the disk."""

    def __init__(self, path: Path, **header: Any) -> None:
        """`header`: plain values that say whose trace it is. TensorTraceError if the file cannot be written."""
        self._path, self._open = path, ExitStack()
        try:
            make_folder(path.parent)
            self._file: IO[str] = self._open.enter_context(whole_file(path, text=True))
        except OSError as error:
            raise self._error(error) from error
        self._write(json.dumps({"trace": _FORMAT, **header}))

    def add(self, events: Iterable[TensorHash]) -> None:
        """Append events. TensorTraceError if the disk is full."""
        for event in events:
            self._write(json.dumps(asdict(event)))

    def close(self) -> None:
        """Put the file in its place."""
        try:
            self._open.close()
        except OSError as error:
            raise self._error(error) from error

    def _write(self, line: str) -> None:
        try:
            self._file.write(line + "\n")
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> TensorTraceError:
        return TensorTraceError(self._path, f"cannot be written: {cause(error)}", "make room or choose another folder")


def is_trace(path: Path) -> bool:
    """Return whether a file begins as a trace does."""
    with open_file(path) as file:
        return file.read(9) == b'{"trace":'


def read_tensor_trace(path: Path) -> Iterator[TensorHash]:
    """Yield a trace's events. TensorTraceError if it is none, or damaged."""
    mend = "record it anew with fleet trace-tensors"
    try:
        with open_file(path) as file:
            lines = iter(lambda: file.readline(_MOST_LINE_BYTES), b"")
            kind = json.loads(next(lines))["trace"]
            if kind != _FORMAT:
                raise TensorTraceError(
                    path, f"has format {kind}, this version reads {_FORMAT}", "use the version that wrote it"
                )
            for line in lines:
                yield _event(json.loads(line))
    except OSError as error:
        raise TensorTraceError(path, f"cannot be read: {error.strerror}", mend) from error
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise TensorTraceError(path, f"is damaged or no trace ({error})", mend) from error


def _event(told: Any) -> TensorHash:
    """TypeError or ValueError if a line of a trace tells of no hash."""
    event = TensorHash(**told)
    counts = (event.step, event.call, 0 if event.worker is None else event.worker)
    words = (event.name, event.hash)
    if event.kind not in _KINDS or {*map(type, counts)} != {int} or {*map(type, words)} != {str}:
        raise ValueError("a line tells of no hash")
    return event


def merged_traces(parts: list[Iterator[TensorHash]]) -> Iterator[TensorHash]:
    """Yield one trace from the traces of a job's processes, given in rank order; shared tensors come from the first."""
    waiting = [next(part, None) for part in parts]
    while (first := waiting[0]) is not None:
        shared: list[TensorHash] = []
        for index, part in enumerate(parts):
            event = waiting[index]
            while event is not None and event.step == first.step:
                if event.worker is not None:
                    yield event
                elif index == 0:
                    shared.append(event)
                event = next(part, None)
            waiting[index] = event
        yield from shared
