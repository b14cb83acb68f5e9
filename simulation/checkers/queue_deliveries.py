"""Checker of queue deliveries: messages are redelivered until a member settles them, not after.

The workload reports sent, received and settled messages, and the final content of the logs. Every
published value is unique. Violations:

- lost-publish: an acknowledged message is not at its offset;
- lost-message: a message was neither accepted nor dead-lettered, and is not a droppable duplicate;
- redelivered: a message is delivered after its acceptance or rejection was confirmed;
- two-holders: a message is leased to a member while another holds a confirmed lease;
- delivered-twice: two members get the same delivery of a message;
- limit: a message is delivered more often than the group's limit;
- early, early-retry, early-expiry: a delay, a retry's delay or a time to live ends too soon;
- dropped: a message is dropped without a duplicate within the window;
- repeated: a duplicate of the last delivered message within the window is delivered although all
  clocks are correct;
- dead-twice, redriven-twice, not-redriven: a dead-letter queue or a redrive is not exactly once;
- accepted-and-dead: a message is accepted by a member and dead-lettered;
- invented: a message, or a dead-lettered one, has no origin.

Time bounds (ADR 35): clocks of nodes and publishers are up to `skew_s` ahead or behind, and a
leader's clock runs up to a tenth faster than the loop's. So while a partition keeps its leader,
`d` seconds of lease or retry are at least `d / 1.1`; across a leader change two clocks may differ
by `2 * skew_s`, as may the clocks of a publisher and a leader.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.coordinator.runtime.steady_clock import SLEW
from penstock.state.queues.deduplication import SKEW_MS
from penstock.state.queues.delivery import EXPIRED
from simulation.checkers.context import CheckerContext
from simulation.clock import EPOCH_MS

ROUNDING_S = 0.01
"""Tolerance for times rounded to milliseconds."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Message sent by a publisher."""

    at_s: float
    delay_s: float = 0.0
    ttl_s: float | None = None
    dedup_id: bytes | None = None


class Stored(NamedTuple):
    """Message in the log at the end of the run."""

    value: bytes
    timestamp_ms: int
    redriven_from: str | None


class Dead(NamedTuple):
    """Dead-lettered message."""

    id: str
    """Id that a redrive writes to the copy."""
    source: Place
    value: bytes
    attempts: int
    error_class: str
    failed_ms: int


@dataclass(slots=True)
class _Held:
    member: str
    count: int
    since_s: float
    lock_s: float
    epoch: int
    """Leader epoch of the partition; below 0: the leader changed during the request."""


@dataclass(slots=True)
class DeliveryChecker:
    """Messages of one topic, delivered to one group."""

    world: CheckerContext
    limit: int
    window_ms: int
    skew_s: float
    sent: dict[bytes, Sent] = field(default_factory=dict)
    published: dict[Place, bytes] = field(default_factory=dict)
    accepted: set[Place] = field(default_factory=set)
    rejected: set[Place] = field(default_factory=set)
    unsure: set[Place] = field(default_factory=set)
    """Messages whose acceptance has an unknown outcome."""
    received: Counter[Place] = field(default_factory=Counter)
    _counts: dict[tuple[Place, int], str] = field(default_factory=dict)
    _held: dict[Place, _Held] = field(default_factory=dict)
    _not_before: dict[Place, tuple[float, float, int]] = field(default_factory=dict)

    # -- publishers -------------------------------------------------------------------------

    def sends(self, value: bytes, sent: Sent) -> None:
        assert value not in self.sent
        self.sent[value] = sent

    def acknowledged(self, value: bytes, place: Place) -> None:
        self.published[place] = value

    # -- members ----------------------------------------------------------------------------

    def receives(
        self,
        member: str,
        place: Place,
        value: bytes,
        count: int,
        asked_s: float,
        lock_s: float,
        epoch: int,
        *,
        is_copy: bool,
    ) -> None:
        """Checks a message that a member received; the request was sent at `asked_s`."""
        now = self.world.now()
        what = f"{value!r} at {place}, delivery {count} to {member}"
        sent = self.sent.get(value)
        if sent is None:
            self.world.violate("invented", f"never sent: {what}")
            return
        if place in self.accepted or place in self.rejected:
            how = "accepted" if place in self.accepted else "rejected"
            self.world.violate("redelivered", f"{what}: it was {how} before")
        other = self._held.get(place)
        if other is not None and now < self._until(other.since_s, other.lock_s, other.epoch, epoch):
            text = f"{other.member} has held it since {other.since_s:.3f} for {other.lock_s:g} s"
            self.world.violate("two-holders", f"{what}: {text}")
        if (place, count) in self._counts:
            before = self._counts[place, count]
            self.world.violate("delivered-twice", f"{what}: {before} got the same")
        self.received[place] += 1
        if max(count, self.received[place]) > self.limit:
            self.world.violate("limit", f"{what}, which is its {self.received[place]}.")
        due_s = sent.at_s + sent.delay_s
        if not is_copy and now < due_s - 2 * self.skew_s - ROUNDING_S:
            self.world.violate("early", f"{what}: due at {due_s:.3f} by the publisher")
        since_s, delay_s, its_epoch = self._not_before.pop(place, (0.0, 0.0, epoch))
        if now < self._until(since_s, delay_s, its_epoch, epoch):
            text = f"released at {since_s:.3f} for {delay_s:g} s"
            self.world.violate("early-retry", f"{what}: {text}")
        self._counts[place, count] = member
        self._held[place] = _Held(member, count, asked_s, lock_s, epoch)

    def _until(self, since_s: float, seconds: float, epoch: int, later_epoch: int) -> float:
        """Earliest end of a duration that started at a leader at `since_s` or later."""
        end_s = since_s + seconds / (1 + SLEW) - ROUNDING_S
        if self.skew_s and (epoch < 0 or epoch != later_epoch):
            end_s -= 2 * self.skew_s
        return end_s

    def holds(self, member: str, place: Place) -> bool:
        held = self._held.get(place)
        return held is not None and held.member == member

    def answers(self, member: str, place: Place, *, accepts: bool) -> None:
        """Records that a member settles a message and may lose its lease."""
        if self.holds(member, place):
            del self._held[place]
        if accepts:
            self.unsure.add(place)

    def was_accepted(self, place: Place) -> None:
        self.accepted.add(place)

    def was_rejected(self, place: Place) -> None:
        self.rejected.add(place)

    def was_released(self, place: Place, asked_s: float, delay_s: float, epoch: int) -> None:
        self._not_before[place] = asked_s, delay_s, epoch

    def gives_back(self, place: Place, count: int) -> None:
        """Records a returned delivery, which may not count."""
        self._counts.pop((place, count), None)
        self.received[place] -= 1

    # -- final check ------------------------------------------------------------------------

    def check(self, log: Mapping[Place, Stored], dead: list[Dead]) -> None:
        for place, value in self.published.items():
            if place not in log or log[place].value != value:
                found = log.get(place)
                self.world.violate("lost-publish", f"{value!r} at {place}: found {found}")
        for place, stored in log.items():
            if stored.value not in self.sent:
                self.world.violate("invented", f"never sent: {stored} at {place}")
        self._check_dead(log, dead)
        self._check_settled(log, {one.source for one in dead})
        self._check_copies(log, dead)

    def _check_dead(self, log: Mapping[Place, Stored], dead: list[Dead]) -> None:
        for place, count in Counter(one.source for one in dead).items():
            if count > 1:
                self.world.violate("dead-twice", f"{place} is dead-lettered {count} times")
        for one in dead:
            stored = log.get(one.source)
            if stored is None or stored.value != one.value:
                self.world.violate("invented", f"{one} is of {stored}")
                continue
            if one.source in self.accepted:
                self.world.violate("accepted-and-dead", str(one))
            if one.attempts > self.limit:
                self.world.violate("limit", str(one))
            if one.error_class == EXPIRED:
                sent = self.sent[one.value]
                failed_s = (one.failed_ms - EPOCH_MS) / 1000
                ends_s = float("inf") if sent.ttl_s is None else sent.at_s + sent.ttl_s
                if failed_s < ends_s - 2 * self.skew_s - ROUNDING_S:
                    self.world.violate("early-expiry", f"{one}: expires at {ends_s}")

    def _check_settled(self, log: Mapping[Place, Stored], dead: set[Place]) -> None:
        seen: dict[tuple[int, bytes], list[tuple[int, bool]]] = {}
        for place, stored in sorted(log.items()):
            is_delivered = self.received[place] > 0 or place in dead
            is_settled = place in self.accepted or place in self.unsure or place in dead
            dedup_id = self.sent[stored.value].dedup_id if stored.redriven_from is None else None
            if dedup_id is None:
                if not is_settled:
                    self.world.violate("lost-message", f"{stored} at {place}")
                continue
            before = seen.setdefault((place[0], dedup_id), [])
            ages = [(stored.timestamp_ms - at_ms, was) for at_ms, was in before]
            before.append((stored.timestamp_ms, is_delivered))
            if is_delivered:
                if not is_settled:
                    self.world.violate("lost-message", f"{stored} at {place}")
                last_ms = next((age for age, was in reversed(ages) if was), self.window_ms)
                if not self.skew_s and 0 <= last_ms < self.window_ms:
                    self.world.violate("repeated", f"{stored} at {place}: ages {ages}")
            elif not any(-SKEW_MS < age < self.window_ms for age, _ in ages):
                self.world.violate("dropped", f"{stored} at {place}: ages {ages}")
            else:
                self.world.reached("repetition dropped")

    def _check_copies(self, log: Mapping[Place, Stored], dead: list[Dead]) -> None:
        copies = Counter(stored.redriven_from for stored in log.values())
        del copies[None]
        for origin, count in copies.items():
            if count > 1:
                self.world.violate("redriven-twice", f"{origin} has {count} copies")
        for one in dead:
            if not copies[one.id]:
                self.world.violate("not-redriven", str(one))
        for origin in copies.keys() - {one.id for one in dead}:
            self.world.violate("invented", f"copy of missing {origin}")
