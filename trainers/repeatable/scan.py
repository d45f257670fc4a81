"""Which kernels a model needs: those without a deterministic form, and those that differ between devices.

Hardware-agnostic kernels (D2) cost little where a model is made of matrix products and element-wise work: under 1 % for
NeuMF, BERT, Electra and Swin. They cost much where makers tune a kernel to each device, as for convolutions: 236 % on
average (EasyScale, SC'23, 3.3 and 5.1.2). So a model is scanned for such kernels before devices are mixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AvgPoolNd, _LPPoolNd
from torch.utils._python_dispatch import TorchDispatchMode

from trainers.repeatable.process_settings import evaluating

CONVOLUTION = "a convolution: makers tune its kernels to each device (cuDNN, oneDNN)"
RECURRENT = "a recurrent network: the whole sequence is one tuned kernel (cuDNN)"
FOURIER = "a Fourier transform: its plan is made for the device (cuFFT, MKL)"
LOSS = "a connectionist temporal classification loss: one tuned kernel (cuDNN)"
ATTENTION = "fused attention, its blocks cut to the device; D2 writes it out as matrix products and a softmax"
UNREAD = "its code cannot be read; give the scan an input"
PLAIN = "matrix products and element-wise work"

_MODULES: Mapping[type[nn.Module], str] = {
    _ConvNd: CONVOLUTION,
    nn.RNNBase: RECURRENT,
    nn.MultiheadAttention: ATTENTION,
    nn.CTCLoss: LOSS,
}
_FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), CONVOLUTION),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), CONVOLUTION),
    **dict.fromkeys(("scaled_dot_product_attention", "flex_attention", "multi_head_attention_forward"), ATTENTION),
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "fft2", "rfft2", "fftn", "stft", "istft"), FOURIER),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), RECURRENT),
    "ctc_loss": LOSS,
}
_OPERATORS: Mapping[str, str] = {
    "convolution": CONVOLUTION,
    "scaled_dot_product": ATTENTION,
    "lstm": RECURRENT,
    "gru": RECURRENT,
    "rnn": RECURRENT,
    "fft": FOURIER,
    "ctc_loss": LOSS,
}
"""Parts of the names of torch's own operators."""


@dataclass(frozen=True)
class Finding:
    """A module, by its name in the model (the model itself has none) and its class, and the finding."""

    module: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.module or 'the model itself'} ({self.kind}): {self.reason}"


@dataclass(frozen=True)
class Scan:
    """What a model's kernels are.

    vendor: modules that rely on kernels which makers tune to a device, and why.
    replaced: modules that do so as well, but for whose kernels D2 has others of little cost.
    agnostic: modules of matrix products and element-wise work.
    unread: modules whose code could not be read; give `scan` an input to see what they run.
    """

    vendor: tuple[Finding, ...]
    replaced: tuple[Finding, ...]
    agnostic: tuple[Finding, ...]
    unread: tuple[Finding, ...]

    @property
    def affordable(self) -> bool:
        """Whether D2 costs little, so that devices of different kinds may be mixed."""
        return not self.vendor and not self.unread

    def __str__(self) -> str:
        if self.affordable:
            count = len(self.agnostic) + len(self.replaced)
            return f"D2 is affordable: none of {count} modules needs kernels tuned to a device"
        shown = (*self.vendor, *self.unread)
        more = f", and {len(shown) - 3} more" if len(shown) > 3 else ""
        return "D2 is expensive; keep to devices of one kind: " + "; ".join(map(str, shown[:3])) + more


def scan(model: nn.Module, *inputs: Any) -> Scan:
    """Look at every module of a model: its class, and what its own `forward` calls.

    inputs: what to call the model with. If given, the model runs once, in eval mode and without gradients, and the
    operators that really run count too, also in functions that a module's code does not show.
    """
    ran = _operators_of(model, inputs) if inputs else {}
    found = [
        Finding(name, type(module).__name__, _reason(module, ran.get(name), bool(inputs)))
        for name, module in model.named_modules()
    ]
    special = (ATTENTION, PLAIN, UNREAD)
    return Scan(
        vendor=tuple(finding for finding in found if finding.reason not in special),
        replaced=tuple(finding for finding in found if finding.reason == ATTENTION),
        agnostic=tuple(finding for finding in found if finding.reason == PLAIN),
        unread=tuple(finding for finding in found if finding.reason == UNREAD),
    )


def _reason(module: nn.Module, ran: str | None, has_run: bool) -> str:
    reason = _reason_of_class(module) or _first(_FUNCTIONS, names_in_forward(module)) or ran
    if reason is not None:
        return reason
    return PLAIN if has_run or _is_read(module) else UNREAD


def _reason_of_class(module: nn.Module) -> str | None:
    return next((reason for kind, reason in _MODULES.items() if isinstance(module, kind)), None)


def _first(reasons: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((reasons[name] for name in names if name in reasons), None)


def _is_read(module: nn.Module) -> bool:
    return hasattr(type(module).forward, "__code__")


def names_in_forward(module: nn.Module) -> list[str]:
    """Return the names that a module's `forward`, and methods and functions inside it, use.

    Methods of the same class count where `forward` names them, to any depth.
    """
    seen: set[str] = set()
    todo, names = ["forward"], []
    while todo:
        method = todo.pop()
        code = getattr(getattr(type(module), method, None), "__code__", None)
        if code is None or method in seen:
            continue
        seen.add(method)
        found = list(_names_in(code))
        names += found
        todo += found
    return names


def _names_in(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _names_in(constant)


def _operators_of(model: nn.Module, inputs: tuple[Any, ...]) -> dict[str, str]:
    """Run the model once; return the reason of each module that ran an operator tuned to a device."""
    with _running_modules(model) as stack, _Watch(stack) as watch, torch.no_grad(), evaluating(model):
        model(*inputs)
    return watch.found


class _Watch(TorchDispatchMode):
    """Notes which module was running when a tuned operator ran."""

    def __init__(self, stack: list[str]) -> None:
        super().__init__()
        self._stack = stack
        self.found: dict[str, str] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = str(function)
        reason = next((reason for part, reason in _OPERATORS.items() if part in operator), None)
        if reason is not None:
            self.found.setdefault(self._stack[-1] if self._stack else "", reason)
        return function(*args, **(kwargs or {}))


@contextmanager
def _running_modules(model: nn.Module) -> Iterator[list[str]]:
    """Give a list whose last entry is the name of the module that runs."""
    stack: list[str] = []

    def leave(*_: Any) -> None:
        stack.pop()

    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name: stack.append(name)))
        hooks.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield stack
    finally:
        for hook in hooks:
            hook.remove()


DRAWS = "random draws, which accelerators make by the number of their multiprocessors"
SUMS = "sums, which accelerators split over their multiprocessors"

_BY_MULTIPROCESSORS: Mapping[type[nn.Module], str] = {
    _DropoutNd: DRAWS,
    nn.RReLU: DRAWS,
    nn.FractionalMaxPool2d: DRAWS,
    nn.FractionalMaxPool3d: DRAWS,
    **dict.fromkeys((_NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm, nn.RMSNorm), SUMS),
    **dict.fromkeys((_AvgPoolNd, _AdaptiveAvgPoolNd, _LPPoolNd), SUMS),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Softmax2d, nn.AdaptiveLogSoftmaxWithLoss), SUMS),
    **dict.fromkeys((nn.Embedding, nn.EmbeddingBag, nn.MultiheadAttention, nn.Bilinear, nn.CosineSimilarity), SUMS),
}
_DRAWN = (
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout rrelu bernoulli bernoulli_ rand "
    "randn randint rand_like randn_like normal normal_ uniform_ multinomial gumbel_softmax exponential_ poisson"
)
_SUMMED = (
    "sum nansum mean nanmean var std var_mean std_mean prod cumsum cumprod logsumexp norm vector_norm softmax "
    "log_softmax softmin layer_norm batch_norm group_norm rms_norm instance_norm normalize avg_pool1d avg_pool2d "
    "avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d lp_pool2d embedding embedding_bag "
    "index_add index_add_ scatter_add scatter_add_ scaled_dot_product_attention cosine_similarity interpolate"
)
"""Names that a `forward` uses, of functions and of tensors' methods."""


def by_multiprocessors(model: nn.Module) -> tuple[Finding, ...]:
    """Look at every module of a model: its class, and the names that its own `forward` uses.

    Matrix products, element-wise work and copies are not found. A name that means something else, such as an attribute
    `mean`, is taken for what it could be.
    """
    found = (
        Finding(name, type(module).__name__, _reason_of_multiprocessors(module))
        for name, module in model.named_modules()
    )
    return tuple(finding for finding in found if finding.reason)


def _reason_of_multiprocessors(module: nn.Module) -> str:
    of_class = next((reason for kind, reason in _BY_MULTIPROCESSORS.items() if isinstance(module, kind)), None)
    if of_class is not None:
        return of_class
    names = frozenset(names_in_forward(module))
    return DRAWS if names & set(_DRAWN.split()) else SUMS if names & set(_SUMMED.split()) else ""


_REFUSAL = re.compile(r"(\S+) does not have a deterministic implementation")


_POOLS = (
    "avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d "
    "fractional_max_pool2d fractional_max_pool3d"
)
_RESHAPED = (
    "upsample_linear1d upsample_bicubic2d reflection_pad1d reflection_pad2d reflection_pad3d grid_sampler_2d "
    "grid_sampler_3d"
)
ON_GPUS_ALONE = frozenset(
    (
        *(f"{name}_backward" for name in f"{_POOLS} {_RESHAPED}".split()),
        "max_unpool2d",
        "max_unpool3d",
        "nll_loss2d_forward",
    )
) | {"_ctc_loss_backward", "put_", "histc", "median.dim", "nanmedian.dim"}
"""Operators that torch refuses on GPUs, as it has no deterministic form of them there, though it has on CPUs; those
that hang on more than their name (`bincount` with weights, `cumsum` of floats) are not among them.
"""


class OperatorsSeen(TorchDispatchMode):
    """A context that notes operators of ON_GPUS_ALONE that run in it, on whatever device, backward passes included."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, overload = func._schema.name.partition("::")[2], func._schema.overload_name
        for each in {name, f"{name}.{overload}"} & ON_GPUS_ALONE:
            self.names += [each] if each not in self.names else []
        return func(*args, **(kwargs or {}))


class NonDeterministicOperator(RuntimeError):
    """The model uses an operator whose result is not the same each time."""


def check_refusal(error: RuntimeError, model: nn.Module, job: str) -> None:
    """Raise NonDeterministicOperator, with operator, module and mend, if an error is torch's refusal of an operator."""
    refused = _REFUSAL.match(str(error))
    if refused is not None:
        raise NonDeterministicOperator(
            f"job {job}: {_module(model, error.__traceback__)} uses {refused[1]}, which has no deterministic form "
            "here, so no two runs need agree; replace it (torch.use_deterministic_algorithms lists such operators and "
            "what to use instead)"
        ) from error


def _module(model: nn.Module, traceback: TracebackType | None) -> str:
    """Return the innermost module of `model` that was at work."""
    names = {id(module): name for name, module in model.named_modules()}
    found = None
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        found = names.get(id(owner), found)
        if id(owner) == id(model):
            found = ""
        traceback = traceback.tb_next
    if found is None:
        return "the loss or the backward pass"
    return f"module {found}" if found else f"the model ({type(model).__name__})"
