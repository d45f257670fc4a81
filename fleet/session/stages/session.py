"""One start of a run, on rank 0: ready, opened, rated, running, ended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fleet.journal import events
from fleet.machine.launch.launched import DONE, FAILED, STOPPED, checking
from fleet.report.analysis import run_costs
from fleet.report.run_history import read_history
from fleet.session.console import rank_console, show_result
from fleet.session.options import RunOptions
from fleet.session.stages.kept_directory import kept
from fleet.session.stages.largest_batches import choose_batches
from fleet.session.stages.opened import Opened, open_run
from fleet.session.stages.output import output_to
from fleet.session.stages.rated import rate_jobs
from fleet.session.stages.ready import make_ready
from fleet.session.stages.running import start
from fleet.session.stages.torn_data import data_in_use, readers_fail
from fleet.session.stages.voted import voted
from fleet.session.wire import Wire
from fleet.workers.rank import Rank


@dataclass(frozen=True)
class Session:
    """One start of a run.

    Args:
        rank: rank 0.
        options: the options of the command line.
        wire: to the other ranks.
    """

    rank: Rank
    options: RunOptions
    wire: Wire

    def run(self) -> int:
        """Check, begin or go on, measure, train, report; returns the exit code."""
        with checking():
            ready = make_ready(self.rank, self.options)
        spec = self.rank.runtime.spec
        with kept(ready.directory, self.wire), output_to(ready.directory, len(spec.jobs), spec.search) as output:
            opened = open_run(ready, self.wire, output)
            try:
                with readers_fail(opened):
                    self._train(opened)
            except Exception:
                with suppress(OSError):  # what went wrong first is told
                    opened.save()
                raise
            return _end(opened)

    def _train(self, opened: Opened) -> None:
        """Choose batches, measure, and train what is not trained yet."""
        opened.books.skipped.check(*data_in_use(opened))
        opened.walltime.announce()
        if choose_batches(opened):
            rated = rate_jobs(opened)
            if self.options.profile is None:
                start(rated).train()


def _end(opened: Opened) -> int:
    """Write how it ended, make the report, print the result."""
    output, ledger = opened.output, opened.books.ledger
    status = _status(opened)
    together = voted(opened, output.journal.seconds())
    seconds = output.journal.seconds()
    output.journal.write(
        events.Ended(status=status, overhead_seconds=ledger.overhead, wall_seconds=seconds, ensemble=together)
    )
    opened.save(status, **_costs(opened), **({"ensemble": together} if together else {}))
    output.view.close()
    if opened.ready.options.profile is None:
        show_result(output.directory.path, sum(opened.books.skipped.counts.values()))
        if opened.searching is not None:
            rank_console().print(opened.searching.told, soft_wrap=True)
    return {"done": DONE, "failed": FAILED}.get(status, STOPPED)


def _costs(opened: Opened) -> dict[str, Any]:
    """What run.json tells of costs: nothing where devices have no prices."""
    if not opened.rank.runtime.spec.resources.prices:
        return {}
    costs = run_costs(read_history(opened.output.directory.journal))
    return {} if costs is None else {"costs": costs.to_json()}


def _status(opened: Opened) -> str:
    """How the run stands; one that only measures is done once that is."""
    ledger, searching, measures = opened.books.ledger, opened.searching, opened.ready.options.profile is not None
    if searching is not None and not measures and not searching.is_over:
        return "failed" if searching.is_stuck else "stopped"
    if not measures or opened.rank.stop.raised:
        return ledger.status
    return "failed" if any(job.status == "failed" for job in ledger.jobs.values()) else "done"
