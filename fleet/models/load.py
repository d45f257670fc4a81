"""Several trained networks as one module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fleet.journal.directory import no_run
from fleet.journal.events import Decided, Event
from fleet.journal.journal import read_journal
from fleet.journal.metric_order import Comparing, MetricOrder, Undeclared
from fleet.journal.run_requests import OwnTrial, SearchRequests
from fleet.models.errors import ModelsError, RunError
from fleet.models.members import Member, Members, read_members
from fleet.models.network import TrainedNetwork, read_network
from fleet.models.recorded_spec import check_trusted
from fleet.report.run_history import RunHistory, build_history
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


Row = dict[str, Any]
_FIRST = ("name", "status", "trial", "epochs")


@dataclass(frozen=True)
class Results:
    """A run's networks.

    Attributes:
        rows: for each network `name`, `status`, `epochs`, the metrics of its last epoch, the values that its search
            gave it, by their paths, `parameters`, `device_seconds`, `checkpoint` (the path of the newest one) and
            `error`; `trial` is its number in the search. All rows have the same keys; what is not known is None. Trials
            that people train have the status `suggested`, `done` or `failed`, and names that begin with `own-`.
        histories: network -> the metrics of each of its epochs, in order.
        comparing: how networks are compared.
    """

    rows: list[Row]
    histories: Mapping[str, list[Mapping[str, float]]]
    comparing: Comparing = field(default_factory=Comparing)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self) -> dict[str, list[Any]]:
        """Column -> its values, as `pandas.DataFrame` takes them."""
        return {key: [row[key] for row in self.rows] for key in (self.rows[0] if self.rows else ())}

    def table(self) -> Any:
        """A pandas DataFrame, a row for each network.

        Raises:
            RunError: pandas is not installed; `to_dict()` needs nothing.
        """
        try:
            import pandas
        except ImportError as error:
            raise RunError(
                f"a table needs the package pandas ({error}): pip install pandas; to_dict() does not"
            ) from None
        return pandas.DataFrame(self.to_dict())

    def best(self, metric: str | None = None, better: str | None = None) -> Row:
        """The row of the best network (of equal ones the first), as `fleet best` has it.

        Args:
            metric: its name; None: that of the search, else that by which the run compares its networks, else accuracy,
                else the held-out loss, else the loss.
            better: `higher` or `lower`, where nobody declares whether more or less of it is better.

        Raises:
            RunError: no network has it, or nobody declares its direction.
        """
        measured = [key for key in self.to_dict() if any(row[key] is not None for row in self.rows)]
        wanted = metric or self.comparing.metric(measured)
        try:
            order = self.comparing.order(wanted, better) if wanted in measured else None
        except Undeclared as error:
            raise RunError(str(error)) from error
        usable = [row for row in self.rows if row["status"] != "failed"]
        found = [] if order is None else order.ranked(usable, lambda row: self._counts(row, order))
        if not found:
            raise RunError(f"no network has a metric {wanted!r}; the columns are {', '.join(self.to_dict())}")
        return found[0]

    def _counts(self, row: Row, order: MetricOrder) -> float | None:
        """By which value a network counts."""
        history = self.histories.get(row["name"]) or [row]
        found = order.value([epoch.get(order.metric) for epoch in history])
        return None if found is None else found[0]


def read_results(directory: Path) -> Results:
    """Read what a run's networks came to; nothing is written, and it may go on meanwhile.

    Raises:
        RunError: the directory holds no run.
    """
    told = list(read_journal(directory / "journal.jsonl"))
    if not told:
        raise RunError(no_run(directory))
    history = build_history(told)
    comparing = history.comparing
    metric = "" if comparing.searched is None else comparing.searched[0]
    histories: dict[str, list[Mapping[str, float]]] = {name: [] for name in history.jobs}
    for epoch in sorted(history.epochs, key=lambda each: each.epoch):
        histories[epoch.job].append(epoch.metrics)
    rows = [*_rows(history, histories, told)]
    rows += [_own_row(trial, metric) for trial in SearchRequests(directory).trials()]
    return Results(_even(rows), histories, comparing)


def _rows(
    history: RunHistory, histories: Mapping[str, list[Mapping[str, float]]], told: Iterable[Event]
) -> Iterator[Row]:
    """A row for each network, without the keys that it has no values for."""
    starts = {event.job: event for event in told if isinstance(event, Decided) and event.kind == "start"}
    checkpoints = {each.job: each.path for each in history.checkpoints}
    errors = {each.job: each.error for each in history.failures}
    seconds: dict[str, float] = {}
    for span in history.spans:
        seconds[span.job] = seconds.get(span.job, 0.0) + span.seconds
    for name, job in history.jobs.items():
        epochs, start = histories[name], starts.get(name)
        yield {
            "name": name,
            "status": job.status,
            **({} if start is None else {"trial": start.trial}),
            "epochs": len(epochs),
            **(epochs[-1] if epochs else {}),
            **({} if start is None else start.values),
            "parameters": job.told.parameters,
            "device_seconds": seconds.get(name, 0.0),
            "checkpoint": checkpoints.get(name),
            "error": errors.get(name),
        }


def _own_row(trial: OwnTrial, metric: str) -> Row:
    return {"name": f"own-{trial.number}", "status": trial.status, metric or "value": trial.value, **trial.values}


def _even(rows: list[Row]) -> list[Row]:
    """The rows with all keys that any of them has, in one order."""
    keys = dict.fromkeys([*_FIRST[:2], *(key for row in rows for key in row)])
    return [{key: row.get(key) for key in keys} for row in rows]
