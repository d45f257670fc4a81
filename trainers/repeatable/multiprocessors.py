"""Which modules' results hang on how many multiprocessors an accelerator has."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AvgPoolNd, _LPPoolNd

from trainers.repeatable.scan import Finding, names_in_forward

DRAWS = "random draws, which accelerators make by the number of their multiprocessors"
SUMS = "sums, which accelerators split over their multiprocessors"

_MODULES: Mapping[type[nn.Module], str] = {
    _DropoutNd: DRAWS,
    nn.RReLU: DRAWS,
    nn.FractionalMaxPool2d: DRAWS,
    nn.FractionalMaxPool3d: DRAWS,
    **dict.fromkeys((_NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm, nn.RMSNorm), SUMS),
    **dict.fromkeys((_AvgPoolNd, _AdaptiveAvgPoolNd, _LPPoolNd), SUMS),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Softmax2d, nn.AdaptiveLogSoftmaxWithLoss), SUMS),
    **dict.fromkeys((nn.Embedding, nn.EmbeddingBag, nn.MultiheadAttention, nn.Bilinear, nn.CosineSimilarity), SUMS),
}
_DRAWN = frozenset((
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "rrelu", "bernoulli",
    "bernoulli_", "rand", "randn", "randint", "rand_like", "randn_like", "normal", "normal_", "uniform_", "multinomial",
    "gumbel_softmax", "exponential_", "poisson",
))  # fmt: skip
_SUMMED = frozenset((
    "sum", "nansum", "mean", "nanmean", "var", "std", "var_mean", "std_mean", "prod", "cumsum", "cumprod", "logsumexp",
    "norm", "vector_norm", "softmax", "log_softmax", "softmin", "layer_norm", "batch_norm", "group_norm", "rms_norm",
    "instance_norm", "normalize", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "lp_pool2d", "embedding", "embedding_bag", "index_add",
    "index_add_", "scatter_add", "scatter_add_", "scaled_dot_product_attention", "cosine_similarity", "interpolate",
))  # fmt: skip
"""Names that a `forward` uses, of functions and of tensors' methods."""


def by_multiprocessors(model: nn.Module) -> tuple[Finding, ...]:
    """Look at every module of a model: its class, and the names that its own `forward` uses.

    Matrix products, element-wise work and copies are not found. A name that means something else, such as an attribute
    `mean`, is taken for what it could be.
    """
    found = (Finding(name, type(module).__name__, _reason(module)) for name, module in model.named_modules())
    return tuple(finding for finding in found if finding.reason)


def _reason(module: nn.Module) -> str:
    of_class = next((reason for kind, reason in _MODULES.items() if isinstance(module, kind)), None)
    if of_class is not None:
        return of_class
    names = frozenset(names_in_forward(module))
    return DRAWS if names & _DRAWN else SUMS if names & _SUMMED else ""
