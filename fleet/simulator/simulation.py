"""A trace under a policy: the second driver of the same policies, beside the live coordinator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from time import perf_counter

from fleet.coordination.reading_together import divided, reader_of
from fleet.scheduling.model.cluster import Prices
from fleet.scheduling.model.data_path import NONE, Lending
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Allocation, BadPlan, Plan, Policy, PolicyTrigger, State, ask
from fleet.scheduling.policies.wrappers import driven
from fleet.simulator.machines.machine import Adapting, AdaptingMachine, Machine, StagedMachine
from fleet.simulator.outcome import SimulationOutcome, Timeline
from fleet.simulator.simulated_jobs import Calendar, Kind, SimulatedBooks
from fleet.simulator.simulated_lanes import FedJob, LaneJob, Lanes, ReaderPosition, SharedPreprocessors
from fleet.simulator.traces.trace import Trace


@dataclass(frozen=True)
class NodeFailure:
    """A node that fails at `time` and works again at `until`, seconds since the first arrival."""

    time: float
    node: int
    until: float = math.inf


_ROUNDING = 1e-6  # of a step


@dataclass(frozen=True)
class SimulationConfig:
    """What a simulation takes for given.

    Attributes:
        seed: root of the policy's random draws.
        slack: samples that a job may be ahead of those with which it shares them, under a policy that shares.
        margin: seconds that promised deadlines leave, as a run's do for its delays.
        prices: of the devices; None: they do not count.
        lending: how many trainers without a job may prepare samples.
        whole_steps: whether jobs end their steps before they leave, as in a run; else they leave in the midst of them.
    """

    seed: int = 0
    slack: float = 0.0
    margin: float = 0.0
    prices: Prices | None = None
    lending: Lending = NONE
    whole_steps: bool = False

    def left_of_step(self, job: JobState, now: float) -> float:
        """Samples that a running job trains yet before it can leave; an epoch's last step may have fewer than others.

        With b samples a step, e an epoch, and x trained of the epoch at `now`: min(b ceil(x / b), e) - x.
        """
        if not (self.whole_steps and job.batch and now > job.ready):
            return 0.0
        trained = job.trained_at(now) % job.epoch if job.epoch else job.trained_at(now)
        begun = trained / job.batch % 1.0
        if begun < _ROUNDING or begun > 1 - _ROUNDING:
            return 0.0
        left = (1 - begun) * job.batch
        return min(left, job.epoch - trained if job.epoch else left, job.remaining_at(now))


USUAL = SimulationConfig()


STALLS = 1000
"""Times in a row that a policy may ask to be woken while nothing happens."""
AT_ONCE = 1e-6
"""Events closer than so many seconds happen together: a lane's may differ by their rounding."""
_ALIKE = 1e-9  # paces whose ratio is so near 1


class Simulation:
    """Plays a trace on a machine under a policy.

    Args:
        trace: the jobs.
        machine: what it plays on.
        policy: pure; decides what runs.
        failures: failures of nodes.
        config: the seed and the like.
        ticked: called for each job that is done.
        watch: called with the time of each plan that was carried out, the plan, and who runs where since then.
    """

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        policy: Policy,
        failures: Sequence[NodeFailure] = (),
        config: SimulationConfig = USUAL,
        ticked: Callable[[], object] | None = None,
        watch: Callable[[float, Plan, Allocation], object] | None = None,
    ) -> None:
        if isinstance(machine, AdaptingMachine):
            machine = machine.under(Adapting(policy.tunes_batches, not policy.learns_rates))
        self._trace, self._machine, self._config = trace, machine, config
        self._adapting = machine if isinstance(machine, AdaptingMachine) else None
        self._policy = driven(policy, machine.cluster, config.prices, config.lending)
        self._staged = machine if isinstance(machine, StagedMachine) else None
        self._failures, self._ticked, self._watch = tuple(failures), ticked, watch
        self._coming, self._arrived = trace.coming(), 0
        self._books = SimulatedBooks(machine.cluster, self._coming.most)
        self._calendar = Calendar()
        self._timeline = Timeline()
        self._lanes, self._lane_numbers = Lanes(config.slack), count(1)
        self._preprocessors, self._feedings = SharedPreprocessors(trace.feeds), 0
        self._lent = 0  # trainers that prepare samples, by the last plan
        self._classes = SharingClasses(not trace.any_epoch and policy.shares_streams)
        self._loss_curves = LossCurves(trace.losses)
        self._trigger = PolicyTrigger(policy.trigger, math.inf)
        self._formed: dict[str, tuple[int, ...]] = {}
        self._stalled = 0
        self._left = -math.inf  # when the last of those who lost their devices has ended its step there

    def run(self) -> SimulationOutcome:
        """From the first arrival until nothing is left to happen.

        Raises:
            BadPlan: the policy gave what cannot be given.
        """
        begin = perf_counter()
        self.play()
        return SimulationOutcome.of(self._policy.name, self._trace, self._books, self._timeline, perf_counter() - begin)

    def play(self) -> SimulatedBooks:
        """Play all jobs, as `run` does; return the books as they are at the end."""
        self._enter_failures()
        while (now := self._next_time()) < math.inf:
            self._happen(now)
            self._trigger.look(now)
            if now >= self._trigger.next and self._carry_out(self._ask(now), now):
                self._carry_out(self._ask(now), now)
        return self._books

    def _next_time(self) -> float:
        """When the next thing happens; infinite when nothing can any more."""
        arrival = self._coming.next
        if arrival == math.inf and not self._books.unfinished:
            return math.inf
        return min(arrival, self._calendar.next, self._trigger.next)

    def _happen(self, now: float) -> None:
        """Everything that happens now."""
        while self._calendar.next <= now:
            kind, what, version = self._calendar.take()
            if kind == Kind.DONE:
                self._done(what, version, now)
            elif kind == Kind.STAGE:
                self._advance(what, version, now)
            elif kind == Kind.PREPARED:
                self._prepared(what, version)
            elif kind == Kind.FAILURE:
                self._fail(what, now)
            elif kind == Kind.REPAIR:
                self._trigger.counts()
                self._books.repaired(self._devices_of(what))
        while self._coming.next <= now:
            self._arrive()
        self._feed(now)

    def _ask(self, now: float) -> Plan:
        """What the policy wants; the wall time that it takes is measured, and costs the simulated jobs nothing."""
        books = self._books
        for changed in (self._loss_curves.changed, self._classes.changed):
            for job in changed(books.unfinished.values(), now):
                books.shown(job)
        state = State(
            books.cluster,
            books.unfinished,
            books.running,
            self._formed,
            books.unavailable,
            self._config.seed,
            now,
            self._trigger.changed,
            self._trigger.memo,
            books.free,
            books.promises,
            self._config.margin,
        )
        begin = perf_counter()
        plan = ask(self._policy, state)
        self._timeline.planned(perf_counter() - begin)
        self._stalled = 0 if self._trigger.events else self._stalled + 1
        self._trigger.planned(plan)
        if plan.wake <= now or self._stalled > STALLS and not books.running:
            raise BadPlan(f"policy {self._policy.name} asks to be woken again and again at {now} s and does nothing")
        return plan

    def _carry_out(self, plan: Plan, now: float) -> bool:
        """Make what runs equal to the plan: first those who leave, then those who come.

        Returns:
            Whether the plan stopped all jobs: the policy is asked again, now that no job is in its way.
        """
        books, new = self._books, self._books.changes(plan.allocation, plan.lanes)
        self._lent = plan.lent or 0
        leaving = plan.stopped if plan.others_go_on else [job for job in books.running if job not in plan.allocation]
        stopped = [*leaving, *(job for job in new if job in books.running)]
        ready = self._free_moves(new)
        if ended := self._end_steps(stopped, now):
            plan, new = plan.without(ended), {job: devices for job, devices in new.items() if job not in ended}
        self._take([job for job in stopped if job not in ended], now)
        books.promises.update(plan.promises)
        books.windows += plan.windows
        for job in plan.dropped:
            books.refused(job)
        for job in plan.admitted:
            books.promised(job)
        for job in plan.promoted:
            books.service_reset(job, now)
        for job, batch in plan.batches.items():
            books.rebatched(job, batch)
            if job in books.running and not self._policy.shares_streams:
                state = books.unfinished[job]
                self._go_on(job, state.remaining_at(now), max(now, state.ready))
        for job, devices in new.items():
            self._start(job, devices, now, ready.get(job))
        if self._policy.shares_streams and new:
            self._share(new, plan.lanes)
        self._feed(now)
        if new and not plan.others_go_on:
            self._formed = dict(books.running)
        self._timeline.drawn(now, books.used, len(books.unfinished) - len(books.running), books.speedup)
        if self._watch is not None:
            self._watch(now, plan, books.running)
        drained = bool(stopped) and not books.running
        for job in stopped if drained else ():
            if job in books.unfinished:
                self._trigger.noted(job)
        return drained

    def _free_moves(self, new: Allocation) -> dict[str, float]:
        """Of the jobs that move, those that need not restart, and when each trains again."""
        if self._adapting is None:
            return {}
        unfinished, running = self._books.unfinished, self._books.running
        moved = [job for job in new if job in running and self._adapting.is_free(unfinished[job], new[job])]
        return {job: unfinished[job].ready for job in moved}

    def _start(self, job: str, devices: tuple[int, ...], now: float, ready: float | None = None) -> None:
        """A job gets devices; `ready` says when it trains there, if it need not restart."""
        books = self._books
        state = books.unfinished[job]
        pace = self._machine.pace(state, devices)
        delay = self._machine.delay(state, devices) + self._parting(now) if ready is None else max(0.0, ready - now)
        books.given(job, devices, now, delay, pace, ready is None)
        if self._staged is not None:
            self._show(self._staged.begun(books.unfinished[job], devices))
        self._enter_end(job)

    def _enter_end(self, job: str) -> None:
        """When a job will be done at its pace, or its stage."""
        state, row = self._books.unfinished[job], self._books.row[job]
        version = self._books.version[row]
        left = math.inf if self._staged is None else self._staged.lasts(state)
        if left < state.remaining:
            self._calendar.enter(state.ready + max(0.0, left) / state.pace, Kind.STAGE, row, version)
        else:
            self._calendar.enter(state.ready + state.remaining / state.pace, Kind.DONE, row, version)

    def _go_on(self, job: str, samples: float, since: float) -> None:
        """A job with so many samples left goes on where it is, at the pace that it has there from `since` on."""
        books = self._books
        books.repaced(job, samples, since, self._machine.pace(books.unfinished[job], books.running[job]))
        self._enter_end(job)

    def _share(self, new: Iterable[str], lanes: Mapping[str, int]) -> None:
        """Jobs of a sharing class that begin together on a lane pace each other, from when all are ready."""
        unfinished = self._books.unfinished
        together: dict[tuple[str, int], list[JobState]] = {}
        for name in new:
            job = unfinished[name]
            if job.stream:
                together.setdefault((job.stream, lanes.get(name, 0)), []).append(job)
        for jobs in together.values():
            readers = [reader_of(job, self._classes.place(job), job.held, job.pace) for job in jobs]
            feed = self._trace.feeds.get(jobs[0].name)
            made = math.inf if feed is None else feed.later * self._config.lending.times(self._lent)
            for members in divided(readers, made):
                self._open_lane([jobs[index] for index in members])

    def _open_lane(self, jobs: Sequence[JobState]) -> None:
        """It begins with the sample that the last of them needs next: the others wait for it to come to theirs."""
        number = next(self._lane_numbers)
        for job in jobs:
            self._books.shown(job.changed(lane=number))
        if len(jobs) > 1:
            since, first = max(job.ready for job in jobs), min(map(self._classes.place, jobs))
            readers = {j.name: LaneJob(j.pace, j.remaining, self._classes.place(j) - first) for j in jobs}
            self._repace(self._lanes.start(readers, since), since, jobs[0].since)

    def _repace(self, readings: Mapping[str, ReaderPosition], since: float, now: float) -> None:
        """What the others of a lane let its jobs do from `since` on."""
        books = self._books
        for job, (samples, end) in readings.items():
            state = books.unfinished[job]
            if abs(state.ready + state.remaining / state.pace - end) > AT_ONCE:
                pace = samples / (end - since) if samples > 0 and end > since else state.pace
                version = books.repaced(job, samples, since, pace)
                self._calendar.enter(end if end > now + AT_ONCE else now, Kind.DONE, books.row[job], version)

    def _feed(self, now: float) -> None:
        """Preprocessors are shared anew among those who train now: each goes as fast as it is fed."""
        if not self._preprocessors:
            return
        jobs = [self._books.unfinished[name] for name in self._books.running]
        paces = {job.name: self._machine.pace(job, self._books.running[job.name]) for job in jobs}
        shares = self._policy.shares_streams
        readers = [FedJob(j.name, j.lane if shares else j.name, paces[j.name]) for j in jobs]
        most = self._preprocessors.most(readers, self._config.lending.times(self._lent))
        fed = {name: min(pace, most[name]) for name, pace in paces.items()}
        self._feedings += 1
        for name, reading in self._lanes.repace(fed, now).items():
            self._repace({name: reading}, max(now, self._books.unfinished[name].ready), now)
        for job in jobs:
            if job.name not in self._lanes and not math.isclose(job.pace, fed[job.name], rel_tol=_ALIKE):
                samples, since = job.remaining_at(now), max(now, job.ready)
                self._books.repaced(job.name, samples, since, fed[job.name])
                self._enter_end(job.name)
            self._enter_prepared(self._books.unfinished[job.name])

    def _enter_prepared(self, job: JobState) -> None:
        """When the job will have read an epoch, if what is kept of its data then makes preprocessors faster."""
        if self._preprocessors.is_new(job.name) and job.epoch:
            left = max(0.0, job.epoch - job.trained)
            self._calendar.enter(job.ready + left / job.pace, Kind.PREPARED, self._books.row[job.name], self._feedings)

    def _prepared(self, row: int, feeding: int) -> None:
        """A job has read an epoch, unless it has been fed otherwise since that was foretold."""
        if feeding == self._feedings:
            self._preprocessors.prepared(self._books.names[row])

    def _take(self, jobs: Sequence[str], now: float) -> None:
        """These jobs lose their devices; those with which they shared samples go on without them."""
        self._part(jobs, now)
        for job in jobs:
            self._books.taken(job, now)

    def _part(self, jobs: Iterable[str], now: float) -> None:
        """These jobs leave those with which they share samples."""
        for job, samples in self._leave(jobs, now).items():
            state = self._books.unfinished[job]
            if now > state.ready:
                self._books.repaced(job, samples, now, state.pace)

    def _end_steps(self, jobs: Sequence[str], now: float) -> list[str]:
        """These jobs end the steps that they are in, and leave; return those whose last steps they are."""
        self._part(jobs, now)
        ended = []
        for name in jobs if self._config.whole_steps else ():
            job = self._books.unfinished[name]
            if left := self._config.left_of_step(job, now):
                end, remaining = now + left / job.pace, job.remaining_at(now) - left
                self._left = max(self._left, end)
                self._books.repaced(name, max(0.0, remaining), now, job.pace)
                if remaining <= 0:
                    ended.append(name)
                    self._end(name, end)
                    self._trigger.wake_by(end)
        return ended

    def _parting(self, now: float) -> float:
        """Seconds until the last of those who leave has ended its step: as in a run, nobody who comes begins before."""
        return max(0.0, self._left - now)

    def _leave(self, jobs: Iterable[str], now: float) -> Mapping[str, float]:
        """These jobs leave their lanes, if they are in one; return what each has still to read."""
        if not self._lanes:
            return {}
        left, staying = self._lanes.leave(jobs, now)
        for job, reading in staying.items():
            since = max(now, self._books.unfinished[job].ready)
            self._repace({job: reading}, since, now)
        return left

    def _arrive(self) -> None:
        job = self._machine.arriving(self._coming.take())
        if (feed := self._trace.feeds.get(job.name)) is not None:
            job = job.changed(fed=feed.own)
        self._books.arrived(self._arrived, job)
        self._arrived += 1
        self._classes.arrived(job)
        self._trigger.counts(job.name, urgent=job.guaranteed)

    def _done(self, row: int, version: int, now: float) -> None:
        if self._books.version[row] == version:
            name = self._books.names[row]
            self._leave([name], now)
            self._end(name, now)

    def _end(self, name: str, now: float) -> None:
        row = self._books.row[name]
        self._books.done(name, now)
        self._coming.ended(row, now)
        for job, further in self._coming.further().items():
            self._books.shown(self._books.unfinished[job].changed(further=further))
        self._trigger.counts(name)
        if self._ticked is not None:
            self._ticked()

    def _advance(self, row: int, version: int, now: float) -> None:
        if self._books.version[row] == version:
            assert self._staged is not None
            name = self._books.names[row]
            job = self._books.unfinished[name]
            left = job.remaining - self._staged.lasts(job)
            self._show(self._staged.advanced(job))
            self._go_on(name, left, now)

    def _show(self, job: JobState) -> None:
        """Policies see a job so from now on; a promised one whose rates are others now is asked about at once."""
        if job.rate is not self._books.unfinished[job.name].rate:
            if job.admitted:
                self._trigger.counts(job.name)
            else:
                self._trigger.noted(job.name)
        self._books.shown(job)

    def _fail(self, failure: int, now: float) -> None:
        hit = self._books.failed(self._devices_of(failure))
        self._take(hit, now)
        self._trigger.counts(*hit)

    def _enter_failures(self) -> None:
        for index, failure in enumerate(self._failures):
            self._calendar.enter(failure.time, Kind.FAILURE, index)
            if failure.until < math.inf:
                self._calendar.enter(failure.until, Kind.REPAIR, index)

    def _devices_of(self, failure: int) -> frozenset[int]:
        return frozenset(self._machine.cluster.devices_of(self._failures[failure].node))


_EPOCH_IS_OVER = 1e-9  # part of an epoch: a job so near its end has finished it


class LossCurves:
    """The losses that policies may know at any time, which are the finished epochs' losses.

    Args:
        losses: job -> the loss of each epoch, from the first.
    """

    def __init__(self, losses: Mapping[str, tuple[float, ...]]) -> None:
        self._losses = losses

    def changed(self, jobs: Iterable[JobState], now: float) -> Iterator[JobState]:
        """The jobs that have finished epochs since they were looked at, with the losses of these."""
        if not self._losses:
            return
        for job in jobs:
            curve = self._losses.get(job.name, ())
            finished = int(job.trained_at(now) / job.epoch + _EPOCH_IS_OVER) if job.epoch else 0
            if len(job.losses) < min(finished, len(curve)):
                yield job.changed(losses=curve[:finished])


_IS_AT_NEXT = 1e-6  # part of an epoch: a job so near its end has finished it


class SharingClasses:
    """Shows policies the epochs that jobs have finished, and their sharing classes: stream and epoch.

    A job whose samples of an epoch are not known stays in the class of its stream.

    Args:
        by_epoch: whether jobs share at the same epoch alone; otherwise their classes stay as they are.
    """

    def __init__(self, by_epoch: bool) -> None:
        self._by_epoch = by_epoch
        self._streams: dict[str, str] = {}

    def arrived(self, job: JobState) -> None:
        """A job is there; its stream is known."""
        if self._by_epoch and job.stream and job.epoch:
            self._streams[job.name] = job.stream

    def place(self, job: JobState) -> float:
        """Samples of its epoch that a job that stands still has trained; 0 where classes have no epochs."""
        return max(0.0, job.trained - job.epochs * job.epoch) if job.name in self._streams else 0.0

    def changed(self, jobs: Iterable[JobState], now: float) -> Iterator[JobState]:
        """The jobs that are at another epoch than when they were looked at, with the classes of these."""
        if not self._streams:
            return
        for job in jobs:
            stream = self._streams.get(job.name)
            if stream is not None:
                finished = int(job.trained_at(now) / job.epoch + _IS_AT_NEXT)
                if finished != job.epochs or job.stream == stream:
                    yield job.changed(epochs=finished, stream=f"{stream}/{finished}")
