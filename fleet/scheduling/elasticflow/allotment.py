"""How many devices each job gets now: what it is promised, and of the rest what returns most (ElasticFlow, 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.scheduling.elasticflow.claims import NEVER, climb
from fleet.scheduling.elasticflow.promises import Promises
from fleet.scheduling.model.state import Allocation, State
from fleet.scheduling.placing.buddy import Placer


@dataclass
class Allotment:
    """Who goes on, and who changes.

    Attributes:
        counts: job -> devices that it should get instead of those that it has.
        stopped: jobs that have devices and get none.
        restarts: whether moving takes time.
        rise: the next slot in which a job is promised more than it gets; NEVER: there is none.
    """

    counts: dict[str, int] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    restarts: bool = False
    rise: int = NEVER

    def place(self, book: Promises, state: State) -> dict[str, tuple[int, ...]]:
        """Buddy blocks for those who change, and for those who make room for them."""
        if not self.counts:
            return {}
        running, lost, going = state.running, state.unavailable, {*self.counts, *self.stopped}
        free, there = state.free_devices().bits(book.tree.width), book.tree.all & ~book.tree.bits(lost)
        for name in going & running.keys():
            free |= book.tree.bits_of(running[name]) & there

        def staying() -> Allocation:
            return {name: devices for name, devices in running.items() if name not in going}

        def may_move(name: str) -> bool:
            claim = book.claims[name]
            return book.spare(claim, state.by_name[name], state.time, claim.target) >= 0

        return Placer(book.tree, free, staying, there, may_move if self.restarts else None).place(self.counts)


def allot(book: Promises, state: State, slot: int, available: int) -> Allotment:
    """Give each job its promised devices of this slot, and the rest to the jobs that it helps most.

    Args:
        book: the promises, which fit into `available` together.
        state: as the policy sees it.
        slot: the one that has begun.
        available: devices that can be given.
    """
    left, restarts = available, False
    for claim in book.claims.values():
        claim.target = level = claim.level(slot)
        left -= claim.levels.counts[level]
        restarts = restarts or claim.restart > 0
    if restarts:
        _raise_with_care(book, state, left)
    elif left:
        climb(book.steps, left)
    return _compared(book, state, slot, restarts)


def _raise_with_care(book: Promises, state: State, left: int) -> None:
    """The same where moving takes time: who has more than it is promised keeps it if it can, and who cannot pay stays.

    A job may be moved at will only if its promise is kept even if it must move again at once; to go back to what it is
    promised it can always pay.
    """
    fixed = set()
    for name in sorted(state.running):
        claim = book.claims[name]
        counts, keeps = claim.levels.counts, claim.levels.number(len(state.running[name]))  # no more than it can use
        more = counts[keeps] - counts[claim.target]
        if 0 < more <= left:
            claim.target = keeps
            left -= more
    for name, claim in book.claims.items():
        if book.spare(claim, state.by_name[name], state.time, -1) < 0:
            fixed.add(name)
    if left:
        climb([step for step in book.steps if step[2] not in fixed], left)


def _compared(book: Promises, state: State, slot: int, restarts: bool) -> Allotment:
    """The changes, now that each job has its target."""
    held, none, found = state.running.get, (), Allotment(restarts=restarts)
    changed = [
        name for name, claim in book.claims.items() if len(held(name, none)) != claim.levels.counts[claim.target]
    ]
    if state.unavailable:
        hit = (name for name, devices in state.running.items() if not state.unavailable.isdisjoint(devices))
        changed = sorted({*changed, *hit})
    for name in changed:
        claim = book.claims[name]
        if claim.target:
            found.counts[name] = claim.levels.counts[claim.target]
        else:
            found.stopped.append(name)
    rising = [claim for claim in book.claims.values() if claim.top > claim.target]
    found.rise = min([claim.next_rise(slot) for claim in rising], default=NEVER)
    return found
