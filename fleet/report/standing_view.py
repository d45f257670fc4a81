"""How a run stands, for people: a few lines, then a table of the networks that train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleet.report import wording
from fleet.report.event_messages import metrics_text
from fleet.report.standing import OtherJob, RunningJob, RunStanding, SearchStanding
from fleet.report.terminal import plain_table
from fleet.report.wording import told_values

STATES = {
    "starting": "starts",
    "measuring": "measures how fast its networks train",
    "training": "trains",
    "stopping": "was asked to stop, and saves its networks",
    "done": "is done",
    "failed": "has ended, and not all of its networks are done",
    "stopped": "was stopped; the same command goes on from its checkpoints",
    "killed": "was killed: nobody writes here, and it has not ended; the same command goes on from its checkpoints",
    "silent": "says nothing any more: rank 0 may be dead",
}
_STYLES = {"training": "cyan", "done": "green", "failed": "bold red", "killed": "bold red", "silent": "bold red"}
_SOURCES = {"epoch": "", "steps": " by its first steps", "plan": " as planned"}
QUIET_SECONDS = 600.0
"""Without an event for so long, a person may want to look at the run's log."""


def status_view(standing: RunStanding, most_rows: int | None = None) -> RenderableType:
    """The summary and the table; most_rows: no more rows than these, and what is left out is counted."""
    parts: list[RenderableType] = [Text("\n".join(_lines(standing)))]
    parts[0].stylize(_STYLES.get(standing.state, "bold"), 0, len(_title(standing)))  # type: ignore[union-attr]
    rows = len(standing.running) if most_rows is None else max(1, most_rows)
    if standing.running:
        parts.append(_running_table(standing.running[:rows], standing.joules is not None))
    if len(standing.running) > rows:
        parts.append(Text(f"... and {len(standing.running) - rows:,} more that train", style="dim"))
    if standing.others:
        parts.append(_others_table(standing.others, standing.joules is not None))
    return Group(*parts)


def _title(standing: RunStanding) -> str:
    return wording.printable(f"{standing.name or standing.directory} {STATES.get(standing.state, standing.state)}")


def _lines(standing: RunStanding) -> Iterator[str]:
    yield _title(standing)
    session = f", session {standing.sessions}" if standing.sessions > 1 else ""
    policy = f", policy {wording.printable(standing.policy)}" if standing.policy else ""
    if standing.sessions:
        yield f"  run        {wording.duration(standing.seconds)}{session}{policy}"
    counts = [f"{number:,} {_COUNTED.get(status, status)}" for status, number in standing.counts.items() if number]
    yield f"  networks   {', '.join(counts) or 'not named yet'}"
    if standing.search is not None:
        yield f"  search     {_searched(standing.search, standing.seconds)}"
        yield f"  best       {_best(standing.search)}"
        if standing.search.front:
            yield f"  front      {', '.join(map(wording.printable, standing.search.front))}"
    if standing.waits:
        told = "; ".join(f"{number:,} for {what}" for what, number in standing.waits.items())
        yield f"  waiting    {told}"
    if standing.state == "measuring" and standing.measuring:
        yield f"  measured   {wording.printable(standing.measuring)} was the last"
    if standing.devices:
        yield f"  devices    {_devices(standing)}"
    if standing.joules is not None:
        idle = wording.energy(standing.idle_joules)
        yield f"  energy     {wording.energy(standing.joules)} by networks, {idle} while devices idled"
    if standing.left is not None and (standing.running or standing.waits):
        yield f"  ends       {_end(standing)}"
    if standing.allocation_left is not None:
        yield f"  allocation {standing.scheduler} ends in {wording.duration(standing.allocation_left)}"
    elif standing.scheduler:
        yield f"  allocation {wording.printable(standing.scheduler)}"
    yield f"  written    {_written(standing)}"
    if standing.damaged:
        yield f"  damaged    {wording.plural(standing.damaged, 'line')} of the journal left out"


_COUNTED = {"running": "training", "stopped": "stopped by name", "pruned": "stopped by the search"}


def _searched(search: SearchStanding, seconds: float) -> str:
    """12 of 60 trials and 40 of 300 epochs have begun, 1.2 of 4 hours are over."""

    def of(number: int, most: int | None, noun: str) -> str:
        return wording.plural(number, noun) if most is None else f"{number:,} of {wording.plural(most, noun)}"

    trials, epochs = of(search.trials, search.most_trials, "trial"), of(search.epochs, search.most_epochs, "epoch")
    hours = f", {seconds / 3600:.3g} of {search.most_hours:g} hours are over" if search.most_hours is not None else ""
    return f"{trials} and {epochs} have begun{hours}"


def _best(search: SearchStanding) -> str:
    if search.best_value is None or search.best_epochs is None:
        return "no trial has a result yet"
    value = wording.metric(search.metric, search.best_value)
    after = wording.plural(search.best_epochs, "epoch")
    name = wording.printable(search.best)
    return f"{name}, {search.metric} {value} after {after}: {told_values(search.values)}"


def _devices(standing: RunStanding) -> str:
    hours = f"{standing.device_seconds / 3600:,.2f} device-hours spent"
    share = f", {100 * standing.device_seconds / standing.reserved:.0f} % of all" if standing.reserved > 0 else ""
    return f"{standing.busy} of {standing.devices} busy; {hours}{share}"


def _end(standing: RunStanding) -> str:
    assert standing.left is not None
    told = f"in {wording.duration(standing.left)} or sooner, if devices stay busy and nothing fails"
    if standing.searches:
        told = f"what its search wants by now in {wording.duration(standing.left)}; its results decide what follows"
    unrated = f"; {wording.plural(standing.unrated, 'network')} of unknown speed taken as the mean"
    return told + (unrated if standing.unrated else "")


def _written(standing: RunStanding) -> str:
    last = "nothing yet" if standing.age is None else f"{standing.last_event} {wording.duration(standing.age)} ago"
    writer = standing.writer
    who = f" by {wording.printable(writer.name)}" if writer.name and writer.lives is not False else ""
    if writer.lives is None and writer.silent is not None:
        return f"{last}{who}, which has given no sign of life for {wording.duration(writer.silent)}"
    if writer.lives and standing.age is not None and standing.age > QUIET_SECONDS:
        return f"{last}{who}, which lives; epochs may be long, or a rank stuck: see its log and stacks/"
    return f"{last}{who}"


def _running_table(jobs: Sequence[RunningJob], energy: bool) -> Table:
    table = plain_table()
    table.add_column("network", overflow="fold")
    for title in ("devices", "epoch", "samples/s", "ends in", *(["energy"] if energy else [])):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("host", overflow="ellipsis", no_wrap=True)
    table.add_column("last epoch", overflow="ellipsis", no_wrap=True)
    for job in jobs:
        left = "-" if job.seconds is None else wording.duration(job.seconds)
        cells = (
            wording.printable(job.job),
            wording.devices(job.devices),
            _epochs(job.epochs, job.most_epochs),
            f"{wording.rate(job.rate)}{_SOURCES.get(job.source, '')}",
            left,
            *([wording.energy(job.joules)] if energy else []),
            wording.printable(", ".join(job.hosts)),
            wording.printable(metrics_text(job.metrics)) or "-",
        )
        table.add_row(*map(Text, cells))
    return table


def _others_table(jobs: Sequence[OtherJob], energy: bool) -> Table:
    table = plain_table()
    table.add_column("network", overflow="fold")
    for title in ("status", "epochs", *(["energy"] if energy else [])):
        table.add_column(title, no_wrap=True)
    table.add_column("last epoch", overflow="fold")
    table.add_column("why", overflow="fold")
    for job in jobs:
        why = f"waits for {job.why}" if job.status == "waiting" else wording.WHY.get(job.why, job.why)
        cells = (
            wording.printable(job.job),
            _COUNTED.get(job.status, job.status),
            _epochs(job.epochs, job.most_epochs),
            *([wording.energy(job.joules)] if energy else []),
            wording.printable(metrics_text(job.metrics)) or "-",
            wording.printable(why) or "-",
        )
        table.add_row(*map(Text, cells))
    return table


def _epochs(epochs: int, most: int | None) -> str:
    return f"{epochs}/{most}" if most else str(epochs)
