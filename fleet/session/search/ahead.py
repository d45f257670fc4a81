"""What idle devices train of a search before it is needed, what becomes of it if nobody needs it, and which checkpoints
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from fleet.coordination.job_record import Standing
from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.search import Search, Segment
from trainers.state.checkpoint import checkpoint_files
from trainers.state.kept_checkpoints import drop_others, drop_rollback, keep_rollback, roll_back


def may_train_ahead(share: float, least: int, unused: int, useful: int, at_risk: int) -> bool:
    """Whether one epoch more may be trained of what nobody may want.

    What is not known to be wanted counts by how much has been for nothing so far: all of it, until something that was
    trained ahead has turned out to be wanted. So a small search, which cannot learn that, trains nothing at a risk.

    Args:
        share: of the epochs that the search wants, how many may be trained for nothing.
        least: epochs that the search is sure to want, all in all.
        unused: epochs that were trained for nothing.
        useful: epochs that were trained at the same risk, and turned out to be wanted.
        at_risk: epochs that were trained, or are, and may turn out to be for nothing.
    """
    likely = (1 + unused) / (1 + unused + useful)
    return unused + likely * (at_risk + 1) <= share * least


_SURE_FOR_EACH = 8
"""So many jobs may wait for each device, and what is not needed yet is still added to them."""
_OPEN_FOR_EACH = 2
"""While fewer trials for each device are ahead of what is decided, more begin to be, as they probably are wanted."""
NOTHING_MORE = ("stopped", "failed", "done")


@dataclass(frozen=True)
class Limits:
    """What may train ahead.

    Attributes:
        paused: trials that pause, beyond their rung.
        fresh: trials that have not begun; only where each of them will.
        share: of the epochs that the search wants, how many may be trained for nothing.
        sure: whether trials that have not begun surely will, so that nothing of their first segment is for nothing.
    """

    paused: bool = True
    fresh: bool = True
    share: float = 1.0
    sure: bool = True


@dataclass(frozen=True)
class Files:
    """What a run has of its jobs on the disk.

    Attributes:
        folder: of a job's checkpoints.
        stands: where a job stands by them.
        dropped: trials whose checkpoints were not kept.
    """

    folder: Callable[[str], Path]
    stands: Callable[[str], Standing]
    dropped: set[int] = field(default_factory=set)


class Ahead:
    """Trials that train ahead of need, an epoch at a time, each on as few devices as it runs on.

    What needs devices takes them at once (see `fleet.scheduling.policies.wrappers`). What is not needed yet, but
    surely will be, trains as if it were, to its end; what very probably will be does so an epoch at a time. It goes
    before new trials, as it began before them, as long as little of it turns out to be for nothing. Decisions do not
    depend on any of this. A trial that turns out to be wanted is gone on with from where it stands. Of one that is not,
    the checkpoint of its last wanted epoch becomes the newest again, when the search wants no more of it.

    Args:
        search: what is likely.
        books: of the run.
        name: of a trial's job.
        files: of the run.
        limits: what may train so.
        beyond: trial -> segments that earlier sessions began to train ahead, in their order.
        sure: segments among these that will be wanted in any case.
        unused: epochs that earlier sessions trained for nothing.
    """

    def __init__(
        self,
        search: Search,
        books: Recorder,
        name: Callable[[int], str],
        files: Files,
        limits: Limits,
        beyond: Mapping[int, Sequence[Segment]],
        sure: Iterable[Segment] = (),
        unused: int = 0,
    ) -> None:
        self._search, self._books, self._name, self._files, self._limits = search, books, name, files, limits
        self._beyond = {trial: list(segments) for trial, segments in beyond.items()}
        self._probable: set[int] = set()  # trials that train so, or wait for it
        self._likeliest: tuple[Segment, ...] | None = None  # of those that might, until the search knows more
        self._sure = {segment for segment in sure if segment in self._beyond.get(segment.trial, ())}
        self._untold = set(self._beyond)  # those that may soon have come to the end of a segment
        self._decided = set(self._beyond)  # those on which the search has decided since they were looked at
        self._risks: dict[int, int] = {}  # trial -> epochs, see `_at_risk`; of all of them together:
        self._risk = 0
        self._lost, self._counted = 0, 0  # epochs of which not much is hoped, after so many decisions
        self._refused: set[int] = set()
        self.unwanted: set[str] = set()
        self.unused = unused  # epochs of all withdrawals
        self._useful = 0  # epochs that were trained at a risk, and were wanted

    def begin(self) -> None:
        """Let the books know where trials stand that a session before began to take back."""
        for trial in self._beyond:
            name = self._name(trial)
            if name in self._books.state.jobs:
                self._books.note(self._books.state.stands_at, name, self._files.stands(name))
            self._note_risk(trial)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments whose results have not been told, of trials that have not stopped on the way."""
        found = {trial: self._untold_of(trial) for trial in sorted(self._untold)}
        self._untold = {trial for trial, segments in found.items() if segments}
        return tuple(segment for segments in found.values() for segment in segments)

    @property
    def sure(self) -> tuple[Segment, ...]:
        """Segments that train although they are not needed yet, as they surely will be: the last of each trial."""
        return tuple(begun[-1] for begun in self._beyond.values() if begun[-1] in self._sure)

    def _untold_of(self, trial: int) -> list[Segment]:
        """A trial's segments that are not told; none of one that pauses before their ends."""
        begun, job = self._beyond.get(trial, ()), self._books.state.jobs.get(self._name(trial))
        untold = [each for each in begun if not self._search.has_result(each.trial, each.end)]
        pauses = job is not None and job.status == "pending" and job.is_paused
        return [] if pauses and job is not None and untold and job.epoch < untold[0].end else untold

    def told(self) -> None:
        """The search has learnt a result."""
        self._likeliest = None

    def decided(self, trial: int) -> None:
        """The search has decided on a trial."""
        self._decided.add(trial)
        self._likeliest = None

    def wanted(self, trial: int) -> None:
        """The search wants now what a trial has trained, or trains, ahead."""
        segments = self._beyond.get(trial, [])
        if not segments:
            return
        first, until = segments.pop(0), self._books.state.jobs[self._name(trial)].until
        if first.start and first not in self._sure and until is not None:
            self._useful += max(0, min(until, first.end) - first.start)
        self._sure.discard(first)
        drop_rollback(self._files.folder(self._name(trial)), first.start)
        if segments:
            self._tell(segments[-1], self._next_epoch(trial))
        else:
            del self._beyond[trial]
            self._probable.discard(trial)
        self._note_risk(trial)

    def is_beyond(self, trial: int) -> bool:
        """Whether a trial has trained further than it is known to be wanted."""
        return trial in self._beyond

    def look(self, admit: Callable[[int], bool]) -> None:
        """Give idle devices the likeliest trials, and let those wait that are so no more.

        Args:
            admit: makes a trial's job part of the run; whether that can be.
        """
        if not self._search.is_over:
            self._begin_sure(admit)
            self._begin_probable(admit)
        idle = 0 if self._search.is_over else self._idle()
        if idle < 1 and not self._beyond:
            return
        likely = [segment for segment in self._search.ahead(self._books.state.cluster.size) if self._may(segment)]
        ahead = {trial for trial in self._untold if self._is_only_ahead(trial)}
        self._let_wait({trial for trial in ahead if not self._surely_begins(trial)} - {each.trial for each in likely})
        for segment in chain(likely, self._surely_new()):
            if idle < 1:
                break
            if not self._is_under_way(segment.trial) and self._issue(segment, admit):
                idle -= 1

    def _surely_new(self) -> Iterator[Segment]:
        """Trials that have not begun and surely will, for devices on which the likely may not train."""
        new = islice(self._search.fresh(), self._books.state.cluster.size)
        return (each for each in new if self._limits.sure and self._may(each))

    def _surely_begins(self, trial: int) -> bool:
        """Whether a trial has not begun, and will in any case."""
        return self._limits.sure and trial >= self._search.begun

    def _begin_sure(self, admit: Callable[[int], bool]) -> None:
        """Let train what will be wanted in any case, as far as the policy has to know of it to choose."""
        ledger = self._books.state
        waiting = sum(not job.state.ahead and job.name not in ledger.running for job in ledger.unfinished)
        room = _SURE_FOR_EACH * ledger.cluster.size - waiting
        if room < 1:
            return
        for segment in self._search.sure(ledger.cluster.size):
            if segment not in self._sure and self._may(segment) and self._begin(segment, admit):
                self._sure.add(segment)
                self._probable.discard(segment.trial)
                self._tell(segment, segment.end)
                room -= 1
            if room < 1:
                return

    def _begin_probable(self, admit: Callable[[int], bool]) -> None:
        """Let train what will very probably be wanted, an epoch each."""
        found = [] if self._is_too_much_lost() else self._probably()
        unlikely = self._probable - {segment.trial for segment in found}
        self._probable -= unlikely
        self._let_wait(unlikely)
        for segment in found:
            if not self._is_under_way(segment.trial) and self._begin(segment, admit):
                self._probable.add(segment.trial)
                self._tell(segment, self._books.state.jobs[self._name(segment.trial)].epoch + 1)

    def _probably(self) -> list[Segment]:
        """What will probably be wanted, as much as there are devices."""
        size = self._books.state.cluster.size
        if self._likeliest is None:
            self._likeliest = tuple(islice(self._search.probable(), size))
        may_more = len(self._risks) < _OPEN_FOR_EACH * size
        may = (each for each in self._likeliest if self._may(each) and each not in self._sure)
        return [each for each in may if may_more or each.trial in self._risks]

    def _is_too_much_lost(self) -> bool:
        """Whether more than may be was trained for nothing, or of trials that are promising no more."""
        self._count_lost()
        return self.unused + self._lost > self._limits.share * self._search.least_epochs(self._limits.sure)

    def _count_lost(self) -> None:
        """Count again what will hardly be wanted, when a part more is decided: with many trials that takes long."""
        decided = len(self._search.decisions)
        if decided > self._counted + self._counted // 16:
            self._counted, self._lost = decided, sum(map(self._lost_of, self._risks))

    def _lost_of(self, trial: int) -> int:
        """Epochs of a trial that were trained at a risk, and will hardly be wanted."""
        until = self._books.state.jobs[self._name(trial)].until or 0
        at_risk = (each for each in self._beyond[trial] if each.start and each not in self._sure)
        bad = (each for each in at_risk if not self._search.is_promising(each))
        return sum(max(0, min(until, each.end) - each.start) for each in bad)

    def take_back(self, in_memory: Callable[[], bool]) -> list[int]:
        """Take back what was trained of trials of which the search wants no more; returns which were.

        Those that still train are `unwanted` first.

        Args:
            in_memory: has jobs saved that are in memory alone; whether there still are such.
        """
        taken = []
        looked_at = self._beyond.keys() if self._search.is_over else self._beyond.keys() & self._decided
        unwanted = [trial for trial in sorted(looked_at) if self._is_unwanted(trial)]
        for trial in unwanted:
            name = self._name(trial)
            if self._books.state.jobs[name].waits:
                self.unwanted.add(name)
            elif not in_memory():
                self._withdraw(trial, name)
                taken.append(trial)
        self._decided = set(unwanted).difference(taken)
        return taken

    def _may(self, segment: Segment) -> bool:
        """Whether a segment may train ahead: its trial can go on, and can be taken back."""
        job = self._books.state.jobs.get(self._name(segment.trial))
        begun = segment.trial < self._search.begun
        out = segment.trial in self._refused or segment.trial in self._files.dropped
        allowed = (self._limits.paused if begun else self._limits.fresh) and not out
        return allowed and (job is None or job.status in ("pending", "running"))

    def _is_within_share(self, segment: Segment) -> bool:
        """Whether one epoch more of a segment leaves enough of what is trained for something."""
        if not segment.start and self._limits.sure:
            return True
        least = self._search.least_epochs(self._limits.sure)
        self._count_lost()
        unused = self.unused + self._lost
        return may_train_ahead(self._limits.share, least, unused, self._useful, self._risk - self._lost)

    def _note_risk(self, trial: int) -> None:
        """Epochs of a trial are wanted, are taken back, or begin."""
        now = self._at_risk(trial) if trial in self._beyond else 0
        self._risk += now - self._risks.pop(trial, 0)
        if now:
            self._risks[trial] = now

    def _at_risk(self, trial: int) -> int:
        """Epochs of a trial, trained or under way, that may turn out to be for nothing."""
        begun, job = self._beyond[trial], self._books.state.jobs.get(self._name(trial))
        wanted = begun[0].start
        for segment in begun:
            if segment in self._sure or (not segment.start and self._limits.sure):
                wanted = segment.end
        return 0 if job is None or job.until is None else max(0, job.until - wanted)

    def _is_only_ahead(self, trial: int) -> bool:
        job = self._books.state.jobs.get(self._name(trial))
        return job is not None and job.state.ahead

    def _let_wait(self, unlikely: Iterable[int]) -> None:
        """Trials that are no longer likely do not begin to train."""
        ledger = self._books.state
        for trial in sorted(unlikely):
            job = ledger.jobs[self._name(trial)]
            if job.waits and job.name not in ledger.running and trial in self._beyond:
                self._tell(self._beyond[trial][-1], job.epoch)

    def _idle(self) -> int:
        """How many devices nobody needs: none while somebody who is needed waits for some."""
        ledger = self._books.state
        waiting = [job for job in ledger.unfinished if job.name not in ledger.running]
        if any(not job.state.ahead for job in waiting):
            return 0
        held = sum(map(len, ledger.held.values())) + sum(job.state.minimum_devices for job in waiting)
        return ledger.cluster.size - len(ledger.lost_devices) - held

    def _is_under_way(self, trial: int) -> bool:
        job = self._books.state.jobs.get(self._name(trial))
        return job is not None and job.waits

    def _issue(self, segment: Segment, admit: Callable[[int], bool]) -> bool:
        """Let a trial train one epoch of the segment; False: it cannot, or too much would be for nothing."""
        if not self._is_within_share(segment) or not self._begin(segment, admit):
            return False
        self._probable.discard(segment.trial)
        self._tell(segment, self._books.state.jobs[self._name(segment.trial)].epoch + 1)
        return True

    def _begin(self, segment: Segment, admit: Callable[[int], bool]) -> bool:
        """Make a segment one that a trial may be told to train; whether it can be."""
        trial, name = segment.trial, self._name(segment.trial)
        if name not in self._books.state.jobs and not admit(trial):
            self._refused.add(trial)
            return False
        begun = self._beyond.setdefault(trial, [])
        if segment not in begun:
            if segment.start:
                keep_rollback(self._files.folder(name), segment.start)
            begun.append(segment)
        self._untold.add(trial)
        return True

    def _next_epoch(self, trial: int) -> int:
        """Until when a trial trains on that trains further than it is wanted."""
        job, segment = self._books.state.jobs[self._name(trial)], self._beyond[trial][-1]
        return segment.end if segment in self._sure else job.epoch + (job.status == "running")

    def _tell(self, segment: Segment, epoch: int) -> None:
        """Let a trial train ahead until so many epochs are over."""
        values = None if segment.trial < self._search.begun else dict(self._search.values(segment.trial))
        self._books.record(
            events.Ahead(
                job=self._name(segment.trial),
                trial=segment.trial,
                start=segment.start,
                end=segment.end,
                epoch=epoch,
                sure=segment in self._sure,
                probable=segment.trial in self._probable,
                values=values,
            )
        )
        self._note_risk(segment.trial)

    def _is_unwanted(self, trial: int) -> bool:
        """Whether the search wants no more of a trial."""
        return self._search.is_over or self._search.status(trial) in NOTHING_MORE

    def _withdraw(self, trial: int, name: str) -> None:
        """Set a trial back to where the search wanted it."""
        begun, job = self._beyond.pop(trial), self._books.state.jobs[name]
        wanted = begun[0].start
        self._sure.difference_update(begun)
        self._probable.discard(trial)
        self._note_risk(trial)
        if not wanted:  # it has not begun, and will not in these bounds
            return
        roll_back(self._files.folder(name), wanted)
        found = self._files.stands(name)
        self._books.record(
            events.Withdrawn(
                job=name,
                trial=trial,
                epoch=found.epoch,
                metrics=dict(found.metrics),
                checkpoint=found.path,
                unused=max(0, job.epoch - wanted),
            )
        )
        self.unused += max(0, job.epoch - wanted)
        self.unwanted.discard(name)


class Retention:
    """Drops them.

    Args:
        search: whose trials.
        books: of the run.
        name: of a trial's job.
        files: of the run.
        keep: how many of a job's newest checkpoints stay; only with 0 any are dropped.
    """

    def __init__(self, search: Search, books: Recorder, name: Callable[[int], str], files: Files, keep: int) -> None:
        self._search, self._books, self._name, self._files, self._keep = search, books, name, files, keep

    def look(self, stopped: Iterable[str], ahead: Callable[[int], bool]) -> None:
        """Drop what nobody can go on from.

        Args:
            stopped: jobs of which the search wants no more.
            ahead: whether a trial has trained further than it is known to be wanted.
        """
        if self._keep:
            return
        names, best = set(stopped), self._search.best()
        kept = {*self._search.front(), *([best[0]] if best is not None else [])}
        hopeless = set(self._search.hopeless())
        for trial in range(self._search.begun):
            if (trial in hopeless or self._name(trial) in names) and trial not in kept and not ahead(trial):
                self._drop(trial)

    def resumed(self, trial: int) -> None:
        """Let the books know that a trial goes on from its first step, if its checkpoints were not kept."""
        name = self._name(trial)
        job = self._books.state.jobs.get(name)
        if trial in self._files.dropped and job is not None and job.checkpoint is None:
            self._books.note(self._books.state.stands_at, name, self._files.stands(name))

    def _drop(self, trial: int) -> None:
        name = self._name(trial)
        job = self._books.state.jobs.get(name)
        if job is None or job.checkpoint is None or not job.is_paused or job.status != "pending":
            return
        self._files.dropped.add(trial)
        folder = self._files.folder(name)
        for path in checkpoint_files(folder):
            with suppress(OSError):
                path.unlink()
        drop_others(folder, None)
        self._books.record(events.Dropped(job=name, trial=trial, epoch=job.epoch))
