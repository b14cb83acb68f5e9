"""Persistent dedup stores that several processes share: SQLite, PostgreSQL, Redis.

`penstock.app.dedup` defines the contract. Every call is one atomic step of the store, so any number
of processes may use it at once. `scope` separates consumers that handle the same messages for
different purposes. Claims expire after `claim_ttl`, ids after `ttl`. Redis removes expired entries
by itself; SQLite and PostgreSQL purge up to `PURGED_MAX` rows every `PURGE_EVERY` calls.

PostgreSQL needs psycopg (extra `postgres`), Redis its client (extra `redis`); both are imported
when a store is created.
"""

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.app.dedup import CLAIM_TTL, TTL, DedupVerdict
from penstock.app.durations import Duration, ms_of
from penstock.base.ports import WallClock
from penstock.runtime.blocking import Mutex
from penstock.runtime.clock import SystemClock

if TYPE_CHECKING:
    import psycopg
    import redis

TABLE: Final = "penstock_dedup"
TRIES_MAX: Final = 10
PURGE_EVERY: Final = 1_000
PURGED_MAX: Final = 1_000

_CREATE: Final = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    scope VARCHAR(255) NOT NULL, id VARCHAR(1024) NOT NULL, token VARCHAR(64) NOT NULL,
    done SMALLINT NOT NULL, until_ms BIGINT NOT NULL, PRIMARY KEY (scope, id))
"""
_CREATE_INDEX: Final = f"CREATE INDEX IF NOT EXISTS {TABLE}_until ON {TABLE} (until_ms)"
_BEGIN: Final = f"""
INSERT INTO {TABLE} (scope, id, token, done, until_ms) VALUES (?, ?, ?, 0, ?)
ON CONFLICT (scope, id) DO UPDATE
SET token = excluded.token, done = 0, until_ms = excluded.until_ms
WHERE {TABLE}.until_ms <= ? RETURNING 1
"""  # noqa: S608
_FINISH: Final = f"""
INSERT INTO {TABLE} (scope, id, token, done, until_ms) VALUES (?, ?, ?, 1, ?)
ON CONFLICT (scope, id) DO UPDATE SET done = 1, until_ms = excluded.until_ms
"""  # noqa: S608
_LOOK: Final = f"SELECT done, token FROM {TABLE} WHERE scope = ? AND id = ?"  # noqa: S608
_FORGET: Final = f"DELETE FROM {TABLE} WHERE scope = ? AND id = ? AND token = ? AND done = 0"  # noqa: S608
_PURGE: Final = f"""
DELETE FROM {TABLE} WHERE (scope, id) IN
(SELECT scope, id FROM {TABLE} WHERE until_ms <= ? LIMIT {PURGED_MAX})
"""  # noqa: S608

_FORGET_IN_REDIS: Final = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""
_DONE: Final = b"done"


class SqlDedup:
    """Base of the SQLite and PostgreSQL stores: one table, one statement per step."""

    is_blocking = True

    def __init__(
        self, scope: str, ttl: Duration, claim_ttl: Duration, clock: WallClock | None
    ) -> None:
        self._scope = scope
        self._ttl_ms, self._claim_ms = ms_of(ttl), ms_of(claim_ttl)
        self._clock = clock or SystemClock()
        self._mutex = Mutex()
        self._calls = 0

    def begin(self, message_id: str, token: str) -> DedupVerdict:
        for _ in range(TRIES_MAX):
            now_ms = self._clock.now_ms()
            values = (self._scope, message_id, token, now_ms + self._claim_ms, now_ms)
            if self._execute(_BEGIN, values):
                self._purge_sometimes(now_ms)
                return DedupVerdict.NEW
            found = self._execute(_LOOK, (self._scope, message_id))
            if found:
                is_done, holder = found[0]
                if not is_done and holder == token:
                    return DedupVerdict.NEW  # The earlier call succeeded; its reply was lost.
                return DedupVerdict.DONE if is_done else DedupVerdict.BUSY
            # The claim was released between the two statements.
        return DedupVerdict.BUSY

    def finish(self, message_id: str, token: str) -> None:
        until_ms = self._clock.now_ms() + self._ttl_ms
        self._execute(_FINISH, (self._scope, message_id, token, until_ms))

    def forget(self, message_id: str, token: str) -> None:
        self._execute(_FORGET, (self._scope, message_id, token))

    def purge(self) -> None:
        """Removes up to `PURGED_MAX` expired rows."""
        self._execute(_PURGE, (self._clock.now_ms(),))

    def _purge_sometimes(self, now_ms: int) -> None:
        self._calls += 1
        if self._calls % PURGE_EVERY == 0:
            self.purge()

    def _execute(self, statement: str, values: Sequence[object]) -> list[Any]:
        raise NotImplementedError


class SqliteDedup(SqlDedup):
    """Store in a SQLite file, for processes of one machine; may be the application's own."""

    def __init__(
        self,
        path: str,
        *,
        scope: str = "",
        ttl: Duration = TTL,
        claim_ttl: Duration = CLAIM_TTL,
        clock: WallClock | None = None,
        busy_timeout: Duration = "5s",
    ) -> None:
        super().__init__(scope, ttl, claim_ttl, clock)
        self._database = sqlite3.connect(
            path,
            timeout=ms_of(busy_timeout) / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(_CREATE)
        self._database.execute(_CREATE_INDEX)

    def close(self) -> None:
        with self._mutex:
            self._database.close()

    def _execute(self, statement: str, values: Sequence[object]) -> list[Any]:
        with self._mutex:
            return self._database.execute(statement, values).fetchall()


class PostgresDedup(SqlDedup):
    """Store in PostgreSQL, for any number of machines; reconnects when it must."""

    def __init__(
        self,
        conninfo: str,
        *,
        scope: str = "",
        ttl: Duration = TTL,
        claim_ttl: Duration = CLAIM_TTL,
        clock: WallClock | None = None,
    ) -> None:
        """`conninfo` is libpq's connection string: a URL, or `host=... dbname=...`."""
        super().__init__(scope, ttl, claim_ttl, clock)
        self._conninfo = conninfo
        self._connection: psycopg.Connection[Any] | None = None
        self._execute(_CREATE, ())
        self._execute(_CREATE_INDEX, ())

    def close(self) -> None:
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _execute(self, statement: str, values: Sequence[object]) -> list[Any]:
        import psycopg

        with self._mutex:
            is_new = self._connection is None or self._connection.closed
            try:
                return self._try(statement, values)
            except psycopg.OperationalError:
                if is_new:
                    raise
            # The connection was stale. Every statement is safe to repeat.
            return self._try(statement, values)

    def _try(self, statement: str, values: Sequence[object]) -> list[Any]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._conninfo, autocommit=True)
        try:
            cursor = self._connection.execute(statement.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            self._connection.close()
            raise


class RedisDedup:
    """Store in Redis. Ids that Redis loses in a crash may be handled again."""

    is_blocking = True

    def __init__(
        self,
        client: "redis.Redis | str",
        *,
        scope: str = "",
        ttl: Duration = TTL,
        claim_ttl: Duration = CLAIM_TTL,
    ) -> None:
        """`client` is a client of the package `redis`, or a URL."""
        import redis

        self._is_own = isinstance(client, str)
        self._redis: redis.Redis = (
            redis.Redis.from_url(client) if isinstance(client, str) else client
        )
        self._prefix = f"penstock-dedup:{scope}:"
        self._ttl_ms, self._claim_ms = max(1, ms_of(ttl)), max(1, ms_of(claim_ttl))
        self._forget = self._redis.register_script(_FORGET_IN_REDIS)

    def begin(self, message_id: str, token: str) -> DedupVerdict:
        name = self._prefix + message_id
        for _ in range(TRIES_MAX):
            if self._redis.set(name, token, nx=True, px=self._claim_ms):
                return DedupVerdict.NEW
            found: Any = self._redis.get(name)
            if found is not None:
                found = found.encode() if isinstance(found, str) else found
                if found == token.encode():
                    return DedupVerdict.NEW  # The earlier call succeeded; its reply was lost.
                return DedupVerdict.DONE if found == _DONE else DedupVerdict.BUSY
            # The entry expired between the two commands.
        return DedupVerdict.BUSY

    def finish(self, message_id: str, token: str) -> None:
        self._redis.set(self._prefix + message_id, _DONE, px=self._ttl_ms)

    def forget(self, message_id: str, token: str) -> None:
        self._forget(keys=[self._prefix + message_id], args=[token])

    def close(self) -> None:
        if self._is_own:
            self._redis.close()
