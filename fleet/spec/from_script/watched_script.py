"""A script run as its own program under watch: its first step is looked at from outside, and its second ends it.

What it asks of other machines, such as GPUs that are not here and other processes, is given on this one.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

from fleet.spec.from_script.value_origins import MAIN, Provenance
from fleet.spec.references import first_line
from preprocess.files.reading import MOST_JSON_BYTES, read_bytes
from trainers.messages.torch_backend import on_loopback

_LOSS_WORDS = ("loss", "cross_entropy", "kl_div")
_FORMS = (
    "squeeze",
    "unsqueeze",
    "view",
    "reshape",
    "flatten",
    "transpose",
    "permute",
    "float",
    "long",
    "double",
    "to",
    "type",
    "contiguous",
)
_SCALES = ("mul", "div", "__mul__", "__rmul__", "__truediv__")


@dataclass(frozen=True)
class FormChange:
    """A method that only changes a tensor's form: its name and arguments."""

    method: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


@dataclass(frozen=True)
class LossCall:
    """A call of a loss in torch.nn.functional."""

    name: str
    outputs: Any
    targets: Any
    arguments: Mapping[str, Any]


@dataclass
class Losses(TorchFunctionMode):
    """Remembers how tensors came from others while it is entered: by losses, by changes of form, by scales.

    Attributes:
        calls: by a loss's id, its call.
        changed: by a tensor's id, the tensor it was made of and the change.
        backward: the loss of the last backward pass; passes: how many there were.
    """

    calls: dict[int, LossCall] = field(default_factory=dict)
    changed: dict[int, tuple[Any, FormChange]] = field(default_factory=dict)
    backward: Any = None
    passes: int = 0
    _kept: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        name = str(getattr(func, "__name__", ""))
        if func is torch.Tensor.backward:
            self.backward, self.passes = args[0], self.passes + 1
        given = func(*args, **keywords)
        if isinstance(given, torch.Tensor):
            if getattr(functional, name, None) is func and any(word in name for word in _LOSS_WORDS):
                self._keep(given, args, keywords, name)
            elif args and isinstance(args[0], torch.Tensor) and given is not args[0]:
                self._follow(given, name, args, keywords)
        return given

    def forget(self) -> None:
        """Forget how tensors came about: another batch begins."""
        self.calls.clear()
        self.changed.clear()
        self._kept.clear()

    def of(self, loss: Any) -> LossCall | None:
        """The call that gave a loss, behind scales; None: it was none."""
        return self.calls.get(id(self.unscaled(loss)))

    def unscaled(self, loss: Any) -> Any:
        """A loss before it was scaled, such as divided by a number of parts."""
        while id(loss) in self.changed and id(loss) not in self.calls and self.changed[id(loss)][1].method in _SCALES:
            loss = self.changed[id(loss)][0]
        return loss

    def source(self, tensor: Any) -> tuple[Any, tuple[FormChange, ...]]:
        """The tensor that another is a form of, and the changes on the way."""
        changes: list[FormChange] = []
        while id(tensor) in self.changed:
            before, change = self.changed[id(tensor)]
            if change.method in _SCALES:
                break
            tensor = before
            changes.insert(0, change)
        return tensor, tuple(changes)

    def _keep(self, loss: Any, args: Sequence[Any], keywords: Mapping[str, Any], name: str) -> None:
        named = dict(zip(("input", "target"), args)) | dict(keywords)
        outputs, targets = named.pop("input", None), named.pop("target", None)
        if len(args) <= 2:
            self.calls[id(loss)] = LossCall(name, outputs, targets, named)
            self._kept += [loss, outputs, targets]

    def _follow(self, given: Any, name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        scales = name in _SCALES and len(args) == 2 and isinstance(args[1], (int, float))
        if name in _FORMS or scales:
            self.changed[id(given)] = args[0], FormChange(name, tuple(args[1:]), keywords)
            self._kept += [given, args[0]]


_PLAIN = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.Load,
    ast.Subscript,
    ast.Call,
    ast.keyword,
)
_BARS = ("tqdm", "trange", "track")
MOST = 1_000_000


def epochs_around(frame: FrameType | None, script: str) -> int | None:
    """Return how often the loop around the one that takes batches runs; None: nobody knows.

    Args:
        frame: where a step is made.
        script: the file of the script; its frames and those of files beside it count.
    """
    found = list(_loops(frame, script))
    batches = next((place for place, loop in enumerate(found) if _count(*loop) is None), 0)
    return _count(*found[batches + 1]) if batches + 1 < len(found) else None


def _loops(frame: FrameType | None, script: str) -> Iterator[tuple[ast.For, FrameType]]:
    """The `for` loops in which a frame stands, from the inside out, through all callers."""
    folder = script.rpartition("/")[0]
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(folder) and "-packages" not in file:
            yield from ((loop, frame) for loop in reversed(_around(file, frame.f_lineno)))
        frame = frame.f_back


def _around(file: str, line: int) -> list[ast.For]:
    """The `for` loops of a file around a line, the outermost first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    return [node for node in loops if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)]


def _count(loop: ast.For, frame: FrameType) -> int | None:
    """Return how often a loop over a range runs; None: it goes over something else, such as batches."""
    text = loop.iter
    if isinstance(text, ast.Call) and _name(text.func) in _BARS:
        text = text.args[0] if _name(text.func) != "trange" else ast.Call(ast.Name("range", ast.Load()), text.args, [])
    if not (isinstance(text, ast.Call) and _name(text.func) == "range"):
        return None
    value = _value(text, frame)
    return len(value) if isinstance(value, Sized) and 0 < len(value) <= MOST else None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of an expression of names, numbers and range() in a frame; None: it has parts of other kinds."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    if not all(isinstance(each, _PLAIN) for each in ast.walk(node)) or any(
        _name(call.func) not in ("range", "int", "len") for call in calls
    ):
        return None
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<loop>", "eval")
    try:
        return eval(code, frame.f_globals, frame.f_locals)
    except Exception:  # such as a name that the loop itself changes
        return None


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_around(frame: FrameType | None, script: str, things: Iterable[Any]) -> dict[int, tuple[str, ...]]:
    """By its id, the names that a thing has in a frame and in its callers, from the inside out.

    A variable's name counts, that of an attribute of a variable's value, and a key of a dictionary.

    Args:
        frame: where a step is made.
        script: the file of the script; its frames and those of files beside it count.
        things: for which names are sought.
    """
    found: dict[int, dict[str, None]] = {id(thing): {} for thing in things}
    folder = script.rpartition("/")[0]
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(folder) and "-packages" not in file:
            for name, value in _named_values(frame.f_locals):
                if id(value) in found:
                    found[id(value)].setdefault(name)
        frame = frame.f_back
    return {key: tuple(names) for key, names in found.items()}


def assigned_at(script: str, line: int) -> tuple[str, ...]:
    """The names to which a line of the script gives what it makes."""
    try:
        tree = ast.parse("".join(linecache.getlines(script)))
    except SyntaxError:
        return ()
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AnnAssign))]
    targets = [
        target
        for node in nodes
        if node.lineno <= line <= (node.end_lineno or 0)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return tuple(dict.fromkeys(name for target in targets if (name := _target_name(target))))


def _named_values(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in list(variables.items()):
        yield name, value
        if not isinstance(value, (ModuleType, type)):
            yield from ((key, each) for key, each in list(_inner(value).items()) if isinstance(key, str))


def _inner(value: Any) -> dict[Any, Any]:
    """A dictionary, or an object's attributes, whatever its own code says of them."""
    if type(value) is dict:
        return value
    try:
        attributes: dict[Any, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes


def _target_name(target: ast.expr) -> str:
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


class Enough(BaseException):
    """The script has shown what it trains."""


@dataclass
class Step:
    """What a script did in its first step.

    Attributes:
        optimizer: whose step it was.
        loader, batch: what gave the batch, and the batch; None: no DataLoader.
        loss: what backward began from; passes: how many backward passes came before the step.
        calls: modules were called so, by id: the module, its input, its output.
        losses: how tensors came about.
        clip: the name of what clips gradients, and its bound.
        epochs: how often the loop around the batches runs, None: nobody knows.
        names: what the script calls its loaders and their data sets, by id.
    """

    optimizer: torch.optim.Optimizer
    loader: Any
    batch: Any
    loss: Any
    passes: int
    calls: dict[int, tuple[Any, Any, Any]]
    losses: Losses
    clip: tuple[str, Any] | None
    epochs: int | None
    names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class Watch:
    """Watches the thread that enters it.

    Attributes:
        provenance: who made what.
        step: the first step, as soon as it came.
        others: further optimizers that stepped.
        seed: the first number with which torch was seeded.
        stepped_schedules: ids of those that were stepped between the first two steps.
        loaded: networks into which weights were read; compiled: those that torch.compile took.
    """

    provenance: Provenance
    step: Step | None = None
    others: list[torch.optim.Optimizer] = field(default_factory=list)
    seed: int | None = None
    stepped_schedules: set[int] = field(default_factory=set)
    loaded: list[Any] = field(default_factory=list)
    compiled: list[Any] = field(default_factory=list)
    _losses: Losses = field(default_factory=Losses)
    _calls: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict)
    _loader: Any = None
    _batch: Any = None
    _clip: tuple[str, Any] | None = None
    _hooks: list[Any] = field(default_factory=list)

    def __enter__(self) -> Watch:
        self._hooks = [
            register_optimizer_step_pre_hook(self._stepped),
            torch.nn.modules.module.register_module_forward_hook(self._ran),
        ]
        self._losses.__enter__()
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._losses.__exit__(None, None, None)
        for hook in self._hooks:
            hook.remove()

    def _seen(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call":
            self.provenance.called(frame)
            notice = _CALLS.get(frame.f_code.co_name)
            if notice is not None:
                notice(self, frame)
        elif event == "return":
            self.provenance.returned(frame, value)
            if frame.f_code.co_name == "__next__" and frame.f_globals.get("__name__") == DataLoader.__module__:
                self._fetched(frame, value)

    def _fetched(self, frame: FrameType, batch: Any) -> None:
        """A DataLoader has given a batch; None: an epoch of it is over."""
        if batch is None or self.step is not None:
            return
        made = self.provenance.constructor(frame.f_locals.get("self"))
        self._loader, self._batch = (made.arguments.get("loader") if made is not None else None), batch
        self._calls.clear()
        self._losses.forget()

    def _ran(self, module: Any, inputs: Any, outputs: Any) -> None:
        """A module has been called."""
        self._calls[id(module)] = module, inputs, outputs

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """An optimizer is about to step."""
        if self.step is None:
            here, script = sys._getframe(), self.provenance.script
            loaders = list(self.provenance.things(DataLoader))
            names = names_around(here, script, [*loaders, *(each.dataset for each in loaders)])
            self.step = Step(
                optimizer,
                self._loader,
                self._batch,
                self._losses.backward,
                self._losses.passes,
                dict(self._calls),
                self._losses,
                self._clip,
                epochs_around(here, script),
                names,
            )
        elif self.step.optimizer is optimizer:
            raise Enough
        else:
            self.others.append(optimizer)


def _seeded(watch: Watch, frame: FrameType) -> None:
    if watch.seed is None and frame.f_globals.get("__name__") == "torch.random":
        watch.seed = int(frame.f_locals.get("seed", 0))


def _schedule_stepped(watch: Watch, frame: FrameType) -> None:
    own = frame.f_locals.get("self")
    inside = frame.f_back is not None and str(frame.f_back.f_globals.get("__name__", "")).startswith("torch.optim.lr_")
    if isinstance(own, LRScheduler) and watch.step is not None and not inside:
        watch.stepped_schedules.add(id(own))


def _weights_read(watch: Watch, frame: FrameType) -> None:
    own = frame.f_locals.get("self")
    if isinstance(own, torch.nn.Module):
        watch.loaded.append(own)


def _clipped(watch: Watch, frame: FrameType) -> None:
    if watch.step is None and frame.f_globals.get("__name__") == "torch.nn.utils.clip_grad":
        bound = frame.f_locals.get("max_norm", frame.f_locals.get("clip_value"))
        if bound is not None:
            watch._clip = frame.f_code.co_name, bound


_CALLS: dict[str, Callable[[Watch, FrameType], None]] = {
    "manual_seed": _seeded,
    "step": _schedule_stepped,
    "load_state_dict": _weights_read,
    "clip_grad_norm_": _clipped,
    "clip_grad_value_": _clipped,
}


@contextmanager
def alone(compiled: Callable[[Any], None]) -> Iterator[None]:
    """Let a script that wants several processes be one, and compute on the CPU where its GPUs are not there.

    Args:
        compiled: is told of each network that torch.compile is given; it stays as it is.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, _one_rank()))
        stack.enter_context(patch.object(dist, "init_process_group", _joined))
        stack.enter_context(patch.object(mp, "spawn", _called_here))
        stack.enter_context(patch.object(torch, "compile", _uncompiled(compiled)))
        if not torch.accelerator.is_available():
            for place in _on_cpu():
                stack.enter_context(place)
            stack.enter_context(_OnCpu())
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _one_rank() -> dict[str, str]:
    """Return what torchrun tells a process that is alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", **on_loopback()}
    return own | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


_join = dist.init_process_group


def _joined(backend: str | None = None, *_: Any, **__: Any) -> None:
    if not torch.accelerator.is_available() or backend is None:
        backend = "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]  # it listens nowhere
    _join(backend, store=store, rank=0, world_size=1)


def _called_here(fn: Callable[..., Any], args: tuple[Any, ...] = (), *_: Any, **__: Any) -> None:
    """The first of the processes that a script would start, in this one."""
    fn(0, *args)


def _uncompiled(tell: Callable[[Any], None]) -> Callable[..., Any]:
    def taken(model: Any = None, **_: Any) -> Any:
        if model is None:
            return lambda inner: taken(inner)
        tell(model)
        return model

    return taken


def _here(device: Any) -> Any:
    """A device of this machine in the place of one that is not there."""
    if isinstance(device, torch.device):
        return device if device.type in ("cpu", "meta") else torch.device("cpu")
    named = isinstance(device, str) and device.partition(":")[0] not in ("cpu", "meta")
    return torch.device("cpu") if named or (isinstance(device, int) and not isinstance(device, bool)) else device


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to and len(args) > 1 and not isinstance(args[1], torch.Tensor):
            args = (args[0], _here(args[1]), *args[2:])
        if keywords.get("device") is not None:
            keywords["device"] = _here(keywords["device"])
        if name == "pin_memory":
            return args[0]
        return func(*args, **keywords)


_to, _wrap = nn.Module.to, DistributedDataParallel.__init__


def _moved(self: nn.Module, *args: Any, **keywords: Any) -> nn.Module:
    if "device" in keywords:
        keywords["device"] = _here(keywords["device"])
    return _to(self, *(_here(each) for each in args), **keywords)


def _wrapped(self: Any, module: nn.Module, *_: Any, **keywords: Any) -> None:
    _wrap(self, module, **{key: value for key, value in keywords.items() if key not in ("device_ids", "output_device")})


def _on_cpu() -> Iterator[Any]:
    """Yield what only a GPU could do, done without one."""
    yield patch.object(nn.Module, "to", _moved)
    yield patch.object(nn.Module, "cuda", lambda self, *_: self)
    yield patch.object(DistributedDataParallel, "__init__", _wrapped)
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed_all"):
        yield patch.object(torch.cuda, name, lambda *_, **__: None)


class ScriptFailed(ValueError):
    """The script ended by an error, or asked to end, before it trained."""


@dataclass(frozen=True)
class Script:
    """What is to be run.

    Attributes:
        path: its file.
        module: the name under which a spec imports it.
        package: the package that it is a part of, "": none.
    """

    path: Path
    module: str
    package: str = ""

    @classmethod
    def named(cls, name: str) -> Script:
        """A module, or a package's `__main__`, of which only the file is looked up.

        Raises:
            ScriptFailed: there is none.
        """
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{name}.__main__") or spec
        except Exception as error:  # a package above it that cannot be imported may raise anything
            raise ScriptFailed(f"{name} cannot be imported: {type(error).__name__}: {first_line(error)}") from None
        if spec is None or spec.origin is None:
            raise ScriptFailed(f"there is no module {name}; fleet looks in this folder and among installed packages")
        package = name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
        return cls(Path(spec.origin), spec.name, package)


def watched(script: Script, options: Sequence[str]) -> Watch:
    """Run a script until its second step, or to its end; what its training showed is in the watch.

    Raises:
        ScriptFailed: it cannot be read, or ends by an error before its first step.
    """
    try:
        code = compile(read_bytes(script.path, MOST_JSON_BYTES), str(script.path), "exec")
    except (OSError, SyntaxError, ValueError) as error:
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ScriptFailed(f"{script.path.name} cannot be read{where}: {first_line(error)}") from None
    watch = Watch(Provenance(str(script.path)))
    main = ModuleType(MAIN)
    main.__file__, main.__package__ = str(script.path), script.package or None
    before = sys.argv
    sys.modules[MAIN], sys.argv = main, [str(script.path), *options]
    try:
        with alone(watch.compiled.append):
            _run(code, main, watch)
    finally:
        sys.argv = before
    return watch


def _run(code: CodeType, main: ModuleType, watch: Watch) -> None:
    try:
        with watch:
            exec(code, vars(main))
    except Enough:
        pass
    except SystemExit as end:
        if watch.step is None and end.code not in (None, 0):
            told = end.code if isinstance(end.code, str) else f"code {end.code}"
            mend = "write its options behind --, as in: fleet init train.py -- --lr 0.1"
            raise ScriptFailed(f"the script ended with {told} before its first step; {mend}") from None
    except BaseException as error:
        if watch.step is None:
            raise ScriptFailed(_failure_text(error, main)) from None


def _failure_text(error: BaseException, main: ModuleType) -> str:
    """The script's own line of an error, and the error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == main.__file__]
    where = (
        f"line {own[-1].lineno}, `{linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()}`: " if own else ""
    )
    return f"the script failed before its first step: {where}{type(error).__name__}: {first_line(error)}"
