"""The database's side of relaying: lanes taken, batches claimed, resolved and marked as sent.

Every method is one short transaction, blocks, and is called from one thread. Invariants:

- Only the latest holder of a lane changes it: each of its transactions is guarded by the `epoch`
  that taking the lane raised. Whoever held it before is told `LaneLost`.
- At most one batch of a lane is claimed at a time, and its number is greater than any before.
- `done` is the number of the last batch that is known to be in the log.

The lease is a hint for liveness: it keeps relays from taking lanes from each other for no reason.
Safety is the epoch's here, and the transactional id's in the cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    RowMapping,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from penstock.app.outbox.tables import OutboxTables, RowState
from penstock.base.ports import Random, WallClock

ERROR_CHARS_MAX = 2_000
PURGED_MAX = 1_000
"""Rows that one cleaning removes."""


class LaneLost(Exception):
    """Another relay holds the lane now."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A lane that was taken: what guards every change of it, and who it is in the cluster."""

    lane: int
    epoch: int
    identity: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A batch on its way."""

    number: int
    rows: Sequence[RowMapping]


@dataclass(frozen=True, slots=True)
class InDoubt:
    """What a lane's last holder left: a batch that may have been sent, and the one before it."""

    number: int | None
    done: int
    last: int


class Lanes:
    def __init__(
        self, engine: Engine, tables: OutboxTables, clock: WallClock, random: Random, lease_ms: int
    ) -> None:
        self._engine = engine
        self._messages = tables.messages
        self._lanes = tables.lanes
        self._clock = clock
        self._random = random
        self._lease_ms = lease_ms

    # -- holding ----------------------------------------------------------------------------

    def create_missing(self) -> None:
        """Makes the rows of lanes that have messages."""
        messages, lanes = self._messages, self._lanes
        with self._engine.connect() as connection:
            known = select(lanes.c.lane)
            open_states = (RowState.PENDING, RowState.CLAIMED)
            missing = connection.scalars(
                select(messages.c.lane)
                .where(messages.c.state.in_(open_states), messages.c.lane.not_in(known))
                .distinct()
            ).all()
        for lane in sorted(missing):
            identity = f"penstock-outbox-{self._random.random_bytes(12).hex()}"
            try:
                with self._engine.begin() as connection:
                    connection.execute(insert(lanes).values(lane=lane, identity=identity))
            except IntegrityError:
                continue  # Another relay was faster.

    def take(self, held: Sequence[int]) -> Hold | None:
        """Takes a lane that nobody holds; None if there is none."""
        lanes, now_ms = self._lanes, self._clock.now_ms()
        free = (
            select(lanes)
            .where(lanes.c.lease_until_ms < now_ms, lanes.c.lane.not_in(held))
            .order_by(lanes.c.lane)
            .limit(1)
            # So that relays which start together do not wait for each other, but share out.
            .with_for_update(skip_locked=True)
        )
        with self._engine.begin() as connection:
            row = connection.execute(free).mappings().first()
            if row is None:
                return None
            epoch = int(row["epoch"]) + 1
            # SQLite locks no rows: there the condition decides.
            taken: Any = connection.execute(
                update(lanes)
                .where(lanes.c.lane == row["lane"], lanes.c.epoch == row["epoch"])
                .values(epoch=epoch, lease_until_ms=now_ms + self._lease_ms)
            )
            if not taken.rowcount:
                return None
            return Hold(int(row["lane"]), epoch, str(row["identity"]))

    def renew(self, hold: Hold) -> None:
        with self._engine.begin() as connection:
            self._guard(connection, hold)

    def release(self, hold: Hold) -> None:
        """Others need not wait for the lease to run out."""
        with self._engine.begin() as connection:
            self._guard(connection, hold, lease_until_ms=0)

    def _guard(self, connection: Connection, hold: Hold, **values: Any) -> None:
        """Changes the lane's row, which keeps it locked; raises LaneLost if it is another's."""
        lanes = self._lanes
        values.setdefault("lease_until_ms", self._clock.now_ms() + self._lease_ms)
        changed: Any = connection.execute(
            update(lanes)
            .where(lanes.c.lane == hold.lane, lanes.c.epoch == hold.epoch)
            .values(**values)
        )
        if not changed.rowcount:
            raise LaneLost(f"another relay has taken lane {hold.lane} of the outbox")

    # -- batches ----------------------------------------------------------------------------

    def claim(self, hold: Hold, rows_max: int, bytes_max: int) -> Claimed | None:
        """The next messages of the lane, under a new number; None if there are none."""
        messages, lanes = self._messages, self._lanes
        pending = (messages.c.lane == hold.lane, messages.c.state == RowState.PENDING)
        with self._engine.connect() as connection:
            if connection.execute(select(messages.c.id).where(*pending).limit(1)).first() is None:
                return None
        with self._engine.begin() as connection:
            self._guard(connection, hold, batch=lanes.c.batch + 1)
            number = connection.scalars(
                select(lanes.c.batch).where(lanes.c.lane == hold.lane)
            ).one()
            size = func.coalesce(func.length(messages.c.payload), 0) + func.length(
                messages.c.headers
            )
            sizes = connection.execute(
                select(messages.c.id, size).where(*pending).order_by(messages.c.id).limit(rows_max)
            ).all()
            if not sizes:
                return None
            ids = _fitting([(int(row_id), int(size)) for row_id, size in sizes], bytes_max)
            chosen = messages.c.id.in_(ids)
            connection.execute(
                update(messages).where(chosen).values(state=int(RowState.CLAIMED), batch=number)
            )
            rows = connection.execute(select(messages).where(chosen).order_by(messages.c.id))
            return Claimed(int(number), rows.mappings().all())

    def in_doubt(self, hold: Hold) -> InDoubt:
        """What is not known to be in the log, and not known not to be."""
        messages, lanes = self._messages, self._lanes
        with self._engine.connect() as connection:
            number = connection.scalars(
                select(func.max(messages.c.batch)).where(
                    messages.c.lane == hold.lane, messages.c.state == RowState.CLAIMED
                )
            ).one()
            row = connection.execute(
                select(lanes.c.done, lanes.c.batch).where(lanes.c.lane == hold.lane)
            ).one()
        return InDoubt(None if number is None else int(number), int(row.done), int(row.batch))

    def mark_sent(self, hold: Hold, number: int) -> None:
        """Batch `number` is in the log."""
        self._settle(hold, RowState.SENT, done=number, sent_ms=self._clock.now_ms())

    def give_back(self, hold: Hold) -> None:
        """What is claimed is not in the log and never will be under that number."""
        self._settle(hold, RowState.PENDING, done=None, batch=None)

    def mark_failed(self, hold: Hold, error: str) -> None:
        """What is claimed cannot be sent."""
        self._settle(hold, RowState.FAILED, done=None, batch=None, error=error[:ERROR_CHARS_MAX])

    def adopt(self, hold: Hold, number: int) -> None:
        """Goes on counting from there."""
        with self._engine.begin() as connection:
            self._guard(connection, hold, batch=number, done=number)

    def _settle(self, hold: Hold, state: RowState, done: int | None, **values: Any) -> None:
        messages, lanes = self._messages, self._lanes
        with self._engine.begin() as connection:
            if done is None:
                self._guard(connection, hold)
            else:
                newer = case((lanes.c.done > done, lanes.c.done), else_=done)
                self._guard(connection, hold, done=newer)
            connection.execute(
                update(messages)
                .where(messages.c.lane == hold.lane, messages.c.state == RowState.CLAIMED)
                .values(state=int(state), **values)
            )

    # -- cleaning ---------------------------------------------------------------------------

    def purge(self, hold: Hold, keep_ms: int) -> int:
        """Removes some of what was sent longer ago; answers how much."""
        messages = self._messages
        with self._engine.begin() as connection:
            self._guard(connection, hold)
            old = (
                select(messages.c.id)
                .where(
                    messages.c.lane == hold.lane,
                    messages.c.state == RowState.SENT,
                    messages.c.sent_ms <= self._clock.now_ms() - keep_ms,
                )
                .order_by(messages.c.id)
                .limit(PURGED_MAX)
            )
            gone: Any = connection.execute(delete(messages).where(messages.c.id.in_(old)))
            return int(gone.rowcount)


def _fitting(sizes: Sequence[tuple[int, int]], bytes_max: int) -> list[int]:
    """The first ids whose messages fit together, and at least one."""
    ids: list[int] = []
    total = 0
    for row_id, size in sizes:
        total += size
        if ids and total > bytes_max:
            break
        ids.append(row_id)
    return ids
