"""Several trained networks as one module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fleet.models.errors import ModelsError
from fleet.models.members import Member, Members, read_members
from fleet.models.network import TrainedNetwork, read_network
from fleet.models.recorded_spec import check_trusted
from fleet.models.results import Results, read_results
from fleet.spec import Job

_SOFTMAX = ("cross_entropy", "CrossEntropyLoss", "multi_margin_loss")
_OF_OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(_SOFTMAX, lambda outputs: outputs.softmax(dim=1)),
    "nll_loss": torch.exp,
    "binary_cross_entropy_with_logits": torch.sigmoid,
}


class Ensemble(nn.Module):
    """Trained networks that predict together: the mean of their probabilities, each network with the same weight.

    Each network normalises its inputs as it did in its run, so a batch is given as the run's data gives it: images as
    uint8 of shape (samples, height, width, channels) or (samples, height, width), all else as it is. Probabilities are
    float32 of shape (samples, classes, ...): the softmax of outputs whose loss is the cross entropy, also a task's own;
    the exponential of those of `nll_loss`; the sigmoid of those of `binary_cross_entropy_with_logits`. Outputs of any
    other named loss are averaged as they are.

    Attributes:
        names: the networks are added up in their order.
        networks: the models, each without its normalisation.
        directory: of the run from which `load` read them; None: they come from elsewhere.
    """

    def __init__(self, members: Sequence[TrainedNetwork], jobs: Sequence[Job]) -> None:
        super().__init__()
        self.directory: Path | None = None
        self.names = tuple(member.name for member in members)
        self.networks = nn.ModuleList(member.model for member in members)
        self._prepare = tuple(member.prepare for member in members)
        self._probabilities = tuple(map(probabilities_of, jobs))
        self.eval()

    def forward(self, inputs: Any) -> Tensor:
        """A batch of inputs -> the mean of all networks' probabilities."""
        total: Tensor | None = None
        for each in range(len(self.names)):
            own = self.member(each, inputs)
            total = own if total is None else total + own
        assert total is not None
        return total / len(self.names)

    def results(self) -> Results:
        """What all networks of the run came to: rows, columns, a pandas table, histories.

        Raises:
            ModelsError: the networks were not read from a run directory.
        """
        if self.directory is None:
            raise ModelsError("these networks were not read from a run directory; use fleet.load, or fleet.attach")
        return read_results(self.directory)

    def member(self, index: int, inputs: Any) -> Tensor:
        """A batch of inputs -> the probabilities of one network, float32."""
        outputs = self.networks[index](self._prepare[index](inputs))
        return self._probabilities[index](outputs.float())


def probabilities_of(job: Job) -> Callable[[Tensor], Tensor]:
    """Return what makes probabilities of a job's outputs; where its loss says nothing of them: the outputs."""
    return _OF_OUTPUTS.get(job.loss.name, _unchanged) if job.loss else _OF_OUTPUTS["cross_entropy"]


def gives_classes(job: Job) -> bool:
    """Whether a job's outputs are probabilities of classes along axis 1, as far as its loss tells."""
    return job.loss is None or job.loss.name in (*_SOFTMAX, "nll_loss")


def _unchanged(outputs: Tensor) -> Tensor:
    return outputs


def load(
    directory: str | Path,
    members: str | Iterable[str] = "all",
    checkpoint: str = "best",
    device: str | torch.device = "cpu",
    trust: bool = False,
) -> Ensemble:
    """Return networks of a run directory as one `nn.Module` that gives mean probabilities, in eval mode.

    Args:
        directory: the run's; nothing is written there, and the run may go on meanwhile.
        members: `all` networks that did not fail and have a checkpoint, `best:5` for the best five of them, or names.
        checkpoint: `best` for each network's best checkpoint where one is kept, else its last; or `last`.
        device: where the networks are.
        trust: whether code that another user chose may run, see `fleet.models.recorded_spec.check_trusted`.

    Raises:
        ModelsError: there is no such run, network or checkpoint, or its code is another user's and not trusted.
        CheckpointError: a checkpoint is damaged.
        SpecError, ReferenceProblem: the run's spec, or a module that it names, cannot be read any more.
    """
    if checkpoint not in ("best", "last"):
        raise ModelsError(f"checkpoint is {checkpoint!r}; choose 'best' or 'last'")
    check_trusted(Path(directory), trust)
    found = read_members(Path(directory))
    ensemble = load_members(found, found.chosen(members), checkpoint, device)
    ensemble.directory = Path(directory)
    return ensemble


def load_members(
    found: Members,
    chosen: Sequence[Member],
    checkpoint: str = "best",
    device: str | torch.device = "cpu",
    each: Callable[[], object] = lambda: None,
) -> Ensemble:
    """Return chosen networks of a run as one module; see `load`.

    Args:
        each: is called before each network is read; what it raises passes.

    Raises:
        ModelsError: a network has no checkpoint, or the device is not there.
    """
    networks = []
    for member in chosen:
        each()
        networks.append(read_network(member, found.spec, checkpoint))
    return on_device(Ensemble(networks, [member.job for member in chosen]), device)


def on_device(ensemble: Ensemble, device: str | torch.device) -> Ensemble:
    """Move it there. ModelsError if the device is not there."""
    try:
        return ensemble.to(device)
    except (RuntimeError, AssertionError) as error:  # torch raises either where a device is missing
        why = (str(error).strip().splitlines() or [""])[0]
        raise ModelsError(
            f"the networks cannot be moved to device {device}: {why}; choose cpu, or mend that"
        ) from error
