"""The networks that predict, and the samples that they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from fleet.models.load import Ensemble, on_device
from fleet.models.members import Members, read_members
from fleet.models.network import TrainedNetwork, read_network
from fleet.models.predictions import check_classes
from fleet.models.recorded_spec import check_trusted
from fleet.models.soup import check_one_architecture
from fleet.session.held_out import HeldOut
from fleet.session.predict.asked import AskedPrediction
from fleet.session.predict.own_file import samples_of
from fleet.session.predict.team import Team
from fleet.spec import EnsembleSpec, Job
from preprocess.files.modules import at_home


@dataclass(frozen=True)
class Panel:
    """Networks of a run and the samples.

    Attributes:
        jobs: the networks' own, in their order.
        device: where they predict.
    """

    spec: EnsembleSpec
    networks: Sequence[TrainedNetwork]
    jobs: Sequence[Job]
    samples: HeldOut
    device: str

    def ensemble(self, *more: TrainedNetwork) -> Ensemble:
        """The networks, and some more that are like the first, as one module on the device."""
        jobs = [*self.jobs, *(self.jobs[0] for _ in more)]
        return on_device(Ensemble([*self.networks, *more], jobs), self.device)

    def alone(self, network: TrainedNetwork) -> Ensemble:
        """A network that is like the first, on the device."""
        return on_device(Ensemble([network], self.jobs[:1]), self.device)

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Let the spec's modules be imported, and torch compute with so many threads as the run's trainers did.

        By the number of threads sums of floats may be rounded.
        """
        before = torch.get_num_threads()
        torch.set_num_threads(self.spec.resources.threads)
        try:
            with at_home(self.spec.folder):
                yield
        finally:
            torch.set_num_threads(before)


def open_panel(directory: Path, asked: AskedPrediction, team: Team) -> Panel:
    """Read the networks that rank 0 chooses, and open the samples; on every rank.

    Raises:
        HarvestError and what else a person can mend, see `fleet.session.predict.team`.
    """
    with team.mending():
        asked.check()
        check_trusted(directory, asked.trust)
        found = read_members(directory)
    paths = team.agreed(lambda: _checkpoints(found, asked))
    with team.mending():
        chosen = [found.of(name).at(Path(path)) for name, path in paths.items()]
        jobs = [member.job for member in chosen]
        samples = samples_of(found.spec, jobs, asked.data)
        if not samples.labelled:
            asked.check_unlabelled()
        networks = [read_network(member, found.spec) for member in chosen]
        if asked.combined.soup is not None:
            check_one_architecture(networks, jobs)
        panel = Panel(found.spec, networks, jobs, samples, team.device(asked.device))
        panel.alone(networks[0])  # finds out whether the device is there
    return panel


def _checkpoints(found: Members, asked: AskedPrediction) -> dict[str, str]:
    """The networks that predict, of greedily chosen ones all, and where their weights are."""
    chosen = found.chosen("all" if asked.picks is not None else asked.members)
    check_classes(member.job for member in chosen)
    return {member.name: str(member.checkpoint(asked.checkpoint)) for member in chosen}
