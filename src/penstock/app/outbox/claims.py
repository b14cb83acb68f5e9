"""Lane store: leases of lanes, and claims of batches, in the outbox's database.

A lane is a partition of the outbox. Every method is one short transaction, blocks, and is called
from one thread. Invariants:

- Only the latest holder of a lane changes it: each of its transactions checks the `epoch`, which
  taking the lane incremented. An earlier holder gets `LaneLost`.
- At most one batch of a lane is claimed at a time, and batch numbers only grow.
- `done` is the number of the last batch that is known to be in the log.

The lease serves liveness only: it keeps relays from taking lanes from each other needlessly. Safety
comes from the epoch here, and from the transactional id in the cluster.
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
"""Maximum rows that one purge deletes, so that its transaction stays short."""


class LaneLost(Exception):
    """Another relay has taken the lane."""


@dataclass(frozen=True, slots=True)
class LaneLease:
    """Lease of a lane: the epoch that fences changes, and the lane's transactional id."""

    lane: int
    epoch: int
    identity: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """Claimed batch: its number and its rows."""

    number: int
    rows: Sequence[RowMapping]


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Unresolved batch of a lane's last holder: it may have been sent.

    `number` is None if no batch is claimed; `done` was sent last, `last` was claimed last.
    """

    number: int | None
    done: int
    last: int


class LaneStore:
    """Operations on lanes and their rows, for one relay."""

    def __init__(
        self, engine: Engine, tables: OutboxTables, clock: WallClock, random: Random, lease_ms: int
    ) -> None:
        self._engine = engine
        self._messages = tables.messages
        self._lanes = tables.lanes
        self._clock = clock
        self._random = random
        self._lease_ms = lease_ms

    # -- leases -----------------------------------------------------------------------------

    def create_missing(self) -> None:
        """Inserts lane rows for lanes that have messages but no row yet."""
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

    def take(self, held: Sequence[int]) -> LaneLease | None:
        """Takes a lane whose lease has expired; returns None if there is none."""
        lanes, now_ms = self._lanes, self._clock.now_ms()
        free = (
            select(lanes)
            .where(lanes.c.lease_until_ms < now_ms, lanes.c.lane.not_in(held))
            .order_by(lanes.c.lane)
            .limit(1)
            # Relays that start together take different lanes instead of waiting.
            .with_for_update(skip_locked=True)
        )
        with self._engine.begin() as connection:
            row = connection.execute(free).mappings().first()
            if row is None:
                return None
            epoch = int(row["epoch"]) + 1
            # SQLite has no row locks: there the condition on the epoch decides.
            taken: Any = connection.execute(
                update(lanes)
                .where(lanes.c.lane == row["lane"], lanes.c.epoch == row["epoch"])
                .values(epoch=epoch, lease_until_ms=now_ms + self._lease_ms)
            )
            if not taken.rowcount:
                return None
            return LaneLease(int(row["lane"]), epoch, str(row["identity"]))

    def renew(self, lease: LaneLease) -> None:
        with self._engine.begin() as connection:
            self._update_fenced(connection, lease)

    def release(self, lease: LaneLease) -> None:
        """Ends the lease, so that other relays need not wait for its expiry."""
        with self._engine.begin() as connection:
            self._update_fenced(connection, lease, lease_until_ms=0)

    def _update_fenced(self, connection: Connection, lease: LaneLease, **values: Any) -> None:
        """Updates and so locks the lane's row; raises LaneLost if another relay has it."""
        lanes = self._lanes
        values.setdefault("lease_until_ms", self._clock.now_ms() + self._lease_ms)
        changed: Any = connection.execute(
            update(lanes)
            .where(lanes.c.lane == lease.lane, lanes.c.epoch == lease.epoch)
            .values(**values)
        )
        if not changed.rowcount:
            raise LaneLost(f"another relay has taken outbox lane {lease.lane}")

    # -- batches ----------------------------------------------------------------------------

    def claim(self, lease: LaneLease, rows_max: int, bytes_max: int) -> Claimed | None:
        """Claims the lane's next messages under a new batch number; None without messages."""
        messages, lanes = self._messages, self._lanes
        pending = (messages.c.lane == lease.lane, messages.c.state == RowState.PENDING)
        with self._engine.connect() as connection:
            if connection.execute(select(messages.c.id).where(*pending).limit(1)).first() is None:
                return None
        with self._engine.begin() as connection:
            self._update_fenced(connection, lease, batch=lanes.c.batch + 1)
            number = connection.scalars(
                select(lanes.c.batch).where(lanes.c.lane == lease.lane)
            ).one()
            size = func.coalesce(func.length(messages.c.payload), 0) + func.length(
                messages.c.headers
            )
            sizes = connection.execute(
                select(messages.c.id, size).where(*pending).order_by(messages.c.id).limit(rows_max)
            ).all()
            if not sizes:
                return None
            ids = _ids_within([(int(row_id), int(size)) for row_id, size in sizes], bytes_max)
            chosen = messages.c.id.in_(ids)
            connection.execute(
                update(messages).where(chosen).values(state=int(RowState.CLAIMED), batch=number)
            )
            rows = connection.execute(select(messages).where(chosen).order_by(messages.c.id))
            return Claimed(int(number), rows.mappings().all())

    def in_doubt(self, lease: LaneLease) -> InDoubt:
        """Reads the batch of which it is unknown if it is in the log."""
        messages, lanes = self._messages, self._lanes
        with self._engine.connect() as connection:
            number = connection.scalars(
                select(func.max(messages.c.batch)).where(
                    messages.c.lane == lease.lane, messages.c.state == RowState.CLAIMED
                )
            ).one()
            row = connection.execute(
                select(lanes.c.done, lanes.c.batch).where(lanes.c.lane == lease.lane)
            ).one()
        return InDoubt(None if number is None else int(number), int(row.done), int(row.batch))

    def mark_sent(self, lease: LaneLease, number: int) -> None:
        """Marks batch `number` as sent: it is in the log."""
        self._settle(lease, RowState.SENT, done=number, sent_ms=self._clock.now_ms())

    def give_back(self, lease: LaneLease) -> None:
        """Makes the claimed rows pending: the batch is not in the log and never will be."""
        self._settle(lease, RowState.PENDING, done=None, batch=None)

    def mark_failed(self, lease: LaneLease, error: str) -> None:
        """Marks the claimed rows as failed: the broker refuses them."""
        self._settle(lease, RowState.FAILED, done=None, batch=None, error=error[:ERROR_CHARS_MAX])

    def adopt(self, lease: LaneLease, number: int) -> None:
        """Continues batch numbers after `number`."""
        with self._engine.begin() as connection:
            self._update_fenced(connection, lease, batch=number, done=number)

    def _settle(self, lease: LaneLease, state: RowState, done: int | None, **values: Any) -> None:
        messages, lanes = self._messages, self._lanes
        with self._engine.begin() as connection:
            if done is None:
                self._update_fenced(connection, lease)
            else:
                newer = case((lanes.c.done > done, lanes.c.done), else_=done)
                self._update_fenced(connection, lease, done=newer)
            connection.execute(
                update(messages)
                .where(messages.c.lane == lease.lane, messages.c.state == RowState.CLAIMED)
                .values(state=int(state), **values)
            )

    # -- purging ----------------------------------------------------------------------------

    def purge(self, lease: LaneLease, keep_ms: int) -> int:
        """Deletes up to `PURGED_MAX` rows sent more than `keep_ms` ago; returns their number."""
        messages = self._messages
        with self._engine.begin() as connection:
            self._update_fenced(connection, lease)
            old = (
                select(messages.c.id)
                .where(
                    messages.c.lane == lease.lane,
                    messages.c.state == RowState.SENT,
                    messages.c.sent_ms <= self._clock.now_ms() - keep_ms,
                )
                .order_by(messages.c.id)
                .limit(PURGED_MAX)
            )
            gone: Any = connection.execute(delete(messages).where(messages.c.id.in_(old)))
            return int(gone.rowcount)


def _ids_within(sizes: Sequence[tuple[int, int]], bytes_max: int) -> list[int]:
    """Returns the first ids whose messages fit into `bytes_max`, and at least one."""
    ids: list[int] = []
    total = 0
    for row_id, size in sizes:
        total += size
        if ids and total > bytes_max:
            break
        ids.append(row_id)
    return ids
