"""A queue partition driven at random beside a model that knows everything about every record.

One seed is one history: records arrive, members take, answer, vanish and are too late, time
passes, the machine crashes and is built again from what it kept. After every step the model says
what must hold; at the end everything must come to an end.
"""

import random
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from penstock.base.errors import Refused
from penstock.state.queues.delivery import Arrival, Delivery, DeliveryOutcome
from penstock.state.queues.delivery_state import (
    DeadLetterBatch,
    Op,
    QueueState,
    Snapshot,
    decode_ops,
    decode_snapshot,
    encode_ops,
    encode_snapshot,
)
from penstock.state.queues.policy import Order, QueuePolicy

LOCK_MS = 100
DELIVERIES_MAX = 3
MEMBERS = "abc"
WAITING, HELD, ARCHIVED, FINISHED = "waiting", "held", "archived", "finished"
PLAIN, TIMED = "plain", "timed"
STEPS = 250


class Anomaly(AssertionError):
    """Violated invariant of a queue; the message names it."""


def _kind_of(arrival: Arrival) -> str:
    if arrival == Arrival(arrival.offset):
        return PLAIN
    return TIMED if arrival == Arrival(arrival.offset, due_ms=arrival.due_ms) else "any"


def require(holds: bool, anomaly: str, *details: object) -> None:
    if not holds:
        raise Anomaly(f"{anomaly}: {details}")


@dataclass
class World:
    seed: int
    order: Order
    make: Callable[[QueuePolicy, QueueState], Delivery] = Delivery
    now: int = 1_000
    end: int = 0
    infos: dict[int, Arrival] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    holders: dict[int, tuple[str, int]] = field(default_factory=dict)
    given_with: dict[int, list[int]] = field(default_factory=dict)
    """Records given in one go with a record, in this order, itself included."""
    dead_letters: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    ops: list[Op] = field(default_factory=list)
    base: bytes = field(default_factory=lambda: encode_snapshot(Snapshot(0)))
    crashes: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.policy = QueuePolicy(
            order=self.order,
            lock_ms=LOCK_MS,
            deliveries_max=DELIVERIES_MAX,
            backoff_base_ms=self.rng.choice([0, 10]),
            backoff_cap_ms=40,
        )
        self.machine = self.make(self.policy, QueueState())

    # -- one history ------------------------------------------------------------------------

    def run(self) -> None:
        steps = [self.arrive, self.take, self.take, self.answer, self.answer, self.answer]
        steps += [self.vanish, self.write_dead_letters, self.crash, self.wait, self.drift]
        for _ in range(STEPS):
            self.rng.choice(steps)()
            self.check_start()
        self.come_to_an_end()

    def arrive(self) -> None:
        rng, first = self.rng, self.end
        self.end += rng.randint(1, 6)
        offsets = range(first, self.end)
        if self.order is Order.NONE and rng.random() < 0.5:
            self.machine.arrive_run(first, self.end - 1)
            self.infos.update((offset, Arrival(offset)) for offset in offsets)
        elif self.order is Order.NONE and rng.random() < 0.5:
            times = [rng.choice([0, self.now + rng.randint(1, 50)]) for _ in offsets]
            self.machine.arrive_timed(first, array("q", times))
            self.infos.update((o, Arrival(o, due_ms=at)) for o, at in enumerate(times, first))
        else:
            arrivals = [self._arrival(offset) for offset in offsets]
            self.machine.arrive(arrivals)
            self.infos.update((arrival.offset, arrival) for arrival in arrivals)
        self.states.update((offset, WAITING) for offset in offsets)

    def _arrival(self, offset: int) -> Arrival:
        rng = self.rng
        due_ms = rng.choice([0, 0, self.now + rng.randint(1, 50)])
        expires_ms = rng.choice([0, 0, 0, self.now + rng.randint(1, 300)])
        return Arrival(offset, rng.choice([0, 0, 9, 3]), due_ms, expires_ms, rng.randint(1, 3))

    def take(self) -> None:
        member = self.rng.choice(MEMBERS)
        count, with_followers = self.rng.randint(1, 5), self.rng.random() < 0.5
        self.note_leases(
            member,
            self.machine.acquire(member, count, self.now, with_followers=with_followers),
            with_followers=with_followers,
        )

    def answer(self) -> None:
        if not self.holders:
            return
        rng = self.rng
        first = last = rng.choice(sorted(self.holders))
        member = self.holders[first][0]
        while self.holders.get(last + 1, ("", 0))[0] == member and rng.random() < 0.7:
            last += 1
        verdicts = ["accept", "accept", "release", "reject", "renew", "give_back", "unknown"]
        verdict = rng.choice(verdicts)
        run = range(first, last + 1)
        is_late = any(self.holders[offset][1] <= self.now for offset in run)
        try:
            if verdict == "unknown":
                self.machine.accept("unknown", first, last, self.now)
                require(False, "the answer of an unknown member counted", first, last)
            outcome: DeliveryOutcome = getattr(self.machine, verdict)(member, first, last, self.now)
        except Refused:
            require(verdict == "unknown" or is_late, "a holder was refused", first, last)
            return
        require(not is_late, "an answer after the lease counted", first, last)
        for offset in run:
            if verdict == "renew":
                self.holders[offset] = (member, self.now + LOCK_MS)
            else:
                del self.holders[offset]
                self.states[offset] = FINISHED if verdict == "accept" else WAITING
            if verdict == "give_back":
                self.counts[offset] -= 1
        self.note(outcome)

    def vanish(self) -> None:
        member = self.rng.choice(MEMBERS)
        outcome = self.machine.release_member(member, self.now)
        self.let_go(lambda holder: holder[0] == member)
        self.note(outcome)

    def write_dead_letters(self) -> None:
        """Plans a batch of dead letters, or ends the planned one, perhaps before a crash."""
        planned = self.machine.kept.dead_letter_batch
        if planned is not None and planned.offsets:
            self.ops += self.machine.finish_dead_letters()
            for offset in planned.offsets:
                self.states[offset] = FINISHED
            return
        archived = [
            offset for offset in sorted(self.dead_letters) if self.states[offset] == ARCHIVED
        ]
        if archived:
            chosen = sorted(self.rng.sample(archived, self.rng.randint(1, len(archived))))
            sequence = planned.sequence if planned is not None else 0
            require(
                sequence == len(self.written), "a gap between batches of dead letters", sequence
            )
            require(not self.written & set(chosen), "written twice", chosen)
            self.written |= set(chosen)
            plan = DeadLetterBatch(1, b"t" * 16, 0, sequence, tuple(chosen), self.now)
            self.ops += self.machine.plan_dead_letters(plan)

    def wait(self) -> None:
        self.now += self.rng.randint(1, 60)
        outcome = self.machine.tick(self.now)
        self.let_go(lambda holder: holder[1] <= self.now)
        self.note(outcome)

    def drift(self) -> None:
        """Advances the time without notifying the machine."""
        self.now += self.rng.randint(1, 60)

    def crash(self) -> None:
        """Builds the machine again from a snapshot and the operations after it."""
        self.crashes += 1
        kept = QueueState(decode_snapshot(self.base))
        for op in decode_ops(encode_ops(self.ops)):
            kept.apply(op)
        live = self.machine.kept.snapshot()
        require(kept.snapshot() == live, "replay differs from live", kept.snapshot(), live)
        if self.rng.random() < 0.5:
            self.base, self.ops = encode_snapshot(live), []
        self.machine = self.make(self.policy, kept)
        start = kept.start
        if (
            kept.dead_letter_batch is not None
            and kept.dead_letter_batch.offsets
            and self.rng.random() < 0.5
        ):
            self.write_dead_letters()  # Dead letters do not wait for the records to be read again.
        self._arrive_again(self.infos[offset] for offset in range(start, self.end))
        archived = {offset for offset, state in self.states.items() if state == ARCHIVED}
        found = {message.offset for message in self.machine.dead_letters()}
        require(found == archived, "dead letters lost in a crash", archived ^ found)

    def _arrive_again(self, arrivals: Iterable[Arrival]) -> None:
        """In batches, each in the way that suits it."""
        is_free = self.order is Order.NONE
        for kind, some in groupby(arrivals, lambda arrival: is_free and _kind_of(arrival)):
            batch = list(some)
            if kind == PLAIN:
                self.machine.arrive_run(batch[0].offset, batch[-1].offset)
            elif kind == TIMED:
                times = array("q", [arrival.due_ms for arrival in batch])
                self.machine.arrive_timed(batch[0].offset, times)
            else:
                self.machine.arrive(batch)

    # -- what must hold ---------------------------------------------------------------------

    def note_leases(
        self, member: str, outcome: DeliveryOutcome, *, with_followers: bool = False
    ) -> None:
        self.ops += outcome.ops
        given = [at for one in outcome.leases for at in range(one.first, one.last + 1)]
        for offset in given:
            self.given_with[offset] = given if with_followers else [offset]
        for lease in outcome.leases:
            for offset in range(lease.first, lease.last + 1):
                state = self.states[offset]
                require(state == WAITING, "delivered though " + state, offset)
                require(self.infos[offset].due_ms <= self.now, "delivered early", offset)
                self.counts[offset] = self.counts.get(offset, 0) + 1
                count = self.counts[offset]
                require(count == lease.delivery_count, "wrong delivery count", offset, count)
                require(count <= DELIVERIES_MAX, "delivered too often", offset, count)
                if self.order is not Order.NONE:
                    self.check_order(offset)
                self.states[offset] = HELD
                self.holders[offset] = (member, lease.deadline_ms)

    def check_order(self, offset: int) -> None:
        info = self.infos[offset]
        for other in range(self.end):
            before = self.infos[other]
            if other == offset or (self.order is Order.KEY and before.key != info.key):
                continue
            are_together = other in self.holders and offset in self.given_with[other]
            require(
                are_together or other not in self.holders, "two of a key in flight", other, offset
            )
            if other < offset and not before.due_ms and not info.due_ms:
                together = self.given_with[offset]
                is_before = other in together and together.index(other) < together.index(offset)
                settled = self.states[other] in (ARCHIVED, FINISHED)
                require(settled or is_before, "delivered out of order", other, offset)

    def note(self, outcome: DeliveryOutcome) -> None:
        self.ops += outcome.ops
        for message in outcome.dead_letters:
            require(
                message.offset not in self.dead_letters,
                "two dead letters for one record",
                message.offset,
            )
            state = self.states[message.offset]
            require(state != FINISHED, "acknowledged and dead-lettered", message.offset)
            self.dead_letters.add(message.offset)
            self.states[message.offset] = ARCHIVED
            self.holders.pop(message.offset, None)

    def let_go(self, condition: Callable[[tuple[str, int]], bool]) -> None:
        for offset in [o for o, holder in self.holders.items() if condition(holder)]:
            del self.holders[offset]
            self.states[offset] = WAITING

    def check_start(self) -> None:
        start = 0
        while start < self.end and self.states[start] == FINISHED:
            start += 1
        require(self.machine.kept.start == start, "wrong start", self.machine.kept.start, start)

    def come_to_an_end(self) -> None:
        for _ in range(500):
            self.now += 50
            outcome = self.machine.tick(self.now)
            self.let_go(lambda holder: holder[1] <= self.now)
            self.note(outcome)
            self.note_leases("z", self.machine.acquire("z", 100, self.now))
            for offset in sorted(self.holders):
                if self.holders[offset][0] == "z":
                    self.note(self.machine.accept("z", offset, offset, self.now))
                    self.states[offset] = FINISHED
                    del self.holders[offset]
            self.write_dead_letters()
            if self.machine.kept.start == self.end:
                return
        left = [offset for offset in range(self.end) if self.states[offset] != FINISHED]
        require(False, "lost or stuck", left[:10])
