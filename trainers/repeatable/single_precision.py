"""How products of float32 are computed: on GPUs in full or in TF32, as is asked for; on processors in float32 alone.

torch has an older and a newer set of switches for that. The newer ones win, and torch raises where somebody has set the
newer and asks for the older, so that both are set here.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch

IEEE, TF32 = "ieee", "tf32"
_ON_PROCESSORS = ("", "mkldnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")  # "": for all that has none of its own
_CUDNN = ("cudnn", "cudnn.conv", "cudnn.rnn")


@dataclass(frozen=True)
class Float32:
    """In what GPUs multiply float32, "ieee" or "tf32"; a script that sets nothing has these defaults of torch.

    matmul: products of matrices. convolutions: what cuDNN computes, so recurrent layers, too.
    """

    matmul: str = IEEE
    convolutions: str = TF32


AS_TORCH = Float32()


def set_float32(float32: Float32) -> None:
    """Set all switches, whatever has set them before."""
    matmul, convolutions = float32.matmul, float32.convolutions
    torch.set_float32_matmul_precision("high" if matmul == TF32 else "highest")
    torch.backends.cudnn.allow_tf32 = convolutions == TF32
    torch.backends.cuda.matmul.allow_tf32 = matmul == TF32
    if _has_newer():
        told = {"cuda.matmul": matmul, **dict.fromkeys(_CUDNN, convolutions), **dict.fromkeys(_ON_PROCESSORS, IEEE)}
        for name, value in told.items():
            _switch(name).fp32_precision = value


def float32_on(device: torch.device) -> Float32:
    """In what such a device may multiply now; what a processor computes in bfloat16 counts as TF32."""
    on_cpu = device.type == "cpu"
    if _has_newer():
        products, layers = ("mkldnn.matmul", _ON_PROCESSORS[3:]) if on_cpu else ("cuda.matmul", _CUDNN[1:])
        return Float32(_said(_is_cut(products)), _said(any(map(_is_cut, layers))))
    cut = torch.get_float32_matmul_precision() != "highest" if on_cpu else torch.backends.cuda.matmul.allow_tf32
    return Float32(_said(cut), _said(not on_cpu and torch.backends.cudnn.allow_tf32))


def _has_newer() -> bool:
    return hasattr(torch.backends, "fp32_precision")  # torch 2.9


def _switch(name: str) -> Any:
    return attrgetter(name)(torch.backends) if name else torch.backends


def _is_cut(name: str) -> bool:
    return str(_switch(name).fp32_precision) not in (IEEE, "none")


def _said(cut: bool) -> str:
    return TF32 if cut else IEEE
