"""The second stage of a session: its books and its journal are open."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fleet.cluster.batch_systems import find_allocation
from fleet.coordination.coordinator import apply_stop_requests
from fleet.coordination.live_state import run_summary
from fleet.journal.run_requests import StopRequests
from fleet.journal.whole_files import EnsembleFile
from fleet.scheduling.policies import Policy
from fleet.session.search.first_trials import searching_of
from fleet.session.search.searching import Halted, Searching
from fleet.session.stages.books import Books, open_books
from fleet.session.stages.deaths import write_deaths
from fleet.session.stages.first_words import write_first_words
from fleet.session.stages.output import Output
from fleet.session.stages.ready import Ready
from fleet.session.walltime import Walltime
from fleet.session.wire import Wire
from fleet.spec.policies import chosen_policy
from fleet.workers.rank import Rank
from trainers.state.kept_checkpoints import best_file


@dataclass(frozen=True)
class Opened:
    """A run that has begun, or gone on.

    Attributes:
        ready: what was checked.
        wire: to the other ranks.
        output: what is written as the run goes.
        policy: the spec's.
        books: what is kept account of.
        walltime: says when the run must stop.
        searching: the search for which its trials train; None: the run has none.
    """

    ready: Ready
    wire: Wire
    output: Output
    policy: Policy
    books: Books
    walltime: Walltime
    searching: Searching | None = None

    @property
    def rank(self) -> Rank:
        return self.ready.rank

    def save(self, status: str = "stopped", **more: Any) -> None:
        """Write run.json as it were if the run ended now, with this status; more: of its keys."""
        self.output.directory.write_run_json({**self._run_json(status), **more})

    def write_ensemble(self) -> None:
        """Write down what jobs that are added have to fit."""
        spec, facts = self.rank.runtime.own_spec, self.rank.runtime.facts
        lengths = {key: (one.samples, one.held_out or None) for key, one in facts.items()}
        EnsembleFile(str(spec.folder), spec.to_mapping(), lengths).write(self.output.directory.path)

    def _run_json(self, status: str) -> dict[str, Any]:
        spec = self.rank.runtime.spec
        more = {
            "name": spec.name,
            "rehearsal": self.rank.runtime.rehearsal is not None,
            "samples": self.books.ledger.samples.to_json(),
            "skipped_samples": self.books.skipped.counts,
            "reduce": self.ready.options.reduce,
        }
        if self.searching is not None:
            more["search"], more["unused_epochs"] = self.searching.to_json(), self.searching.unused
        if self.books.ledger.energy:
            more["energy"] = self.books.ledger.energy.to_json()
        seconds = self.output.journal.seconds()
        summary = run_summary(self.books.ledger, status, spec.policy.name, seconds, **more)
        for name in self.searching.stopped if self.searching is not None else ():
            told = summary["jobs"][name]
            told["status"] = "stopped" if told["status"] == "paused" else told["status"]
        for job, best in self.books.ledger.bests.items():
            if best is not None:
                path = best_file(self.output.directory.checkpoints(job), best.epoch)
                summary["jobs"][job]["best"] = {**asdict(best), "path": str(path)}
        return summary


def open_run(ready: Ready, wire: Wire, output: Output) -> Opened:
    """Open the books, and write down what the run is and where it stands."""
    rank = ready.rank
    spec = rank.runtime.spec
    chosen = chosen_policy(spec.policy.name, **spec.policy.parameters)
    books = open_books(rank, wire, output, chosen)
    measures = ready.options.profile is not None
    searching = None if measures else searching_of(rank, books.keeper)  # before anything is written
    if searching is not None:
        books = replace(books, found={**books.found, **searching.mend_copies()})
    write_first_words(ready, chosen, books)
    write_deaths(output.directory, books.keeper)
    wishes = StopRequests(output.directory.path)
    if searching is not None:
        searching.begin()
    apply_stop_requests(Halted(wishes, searching).jobs(), books.keeper)
    walltime = Walltime(
        rank.stop, find_allocation(), spec.checkpoints.margin, books.ledger, output.journal, asked=wishes.who_stops
    )
    opened = Opened(ready, wire, output, chosen, books, walltime, searching)
    opened.write_ensemble()
    return opened
