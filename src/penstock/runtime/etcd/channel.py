"""Requests to etcd: with a valid token, a timeout, and retries where they are safe.

Owns the token, retries and the interpretation of refusals. Invariants:

- a read is retried on the next endpoint until its timeout;
- a change is sent once. Without a clear response the result is unknown; `ConnectionError` and
  `TimeoutError` mean that it was never sent, or was clearly refused.

`pool` handles connections, `store` the content of the requests.
"""

import asyncio
from typing import Any, TypeVar

import msgspec

from penstock.base.ports import UnknownResult
from penstock.runtime.etcd import messages
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.http import EtcdConnection, EtcdEndpoint
from penstock.runtime.etcd.pool import EtcdRefused, Pool, late, log, now_s, retrying

ATTEMPT_S = 2.0
"""Timeout of one attempt of a read, before another endpoint is tried."""

T = TypeVar("T")


class Unclear(ConnectionError):
    """etcd responded with a failure; it may have applied the request, or may still do so."""


class Channel:
    """Channel for requests: `start` it, then use `read`, `change` and `stream`."""

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self._pool = Pool(config, self._authorize)
        self._timeout_s = config.timeout_ms / 1000
        self._token: str | None = None
        self._signing_in = asyncio.Lock()

    async def start(self) -> None:
        """Tries every endpoint once; raises ConnectionError if none works."""
        self._pool.release(await self._pool.connect(self._deadline(), rounds=1))

    async def read(
        self, path: str, request: dict[str, Any], kind: type[T], *, is_urgent: bool = False
    ) -> T:
        """Sends a read until there is a response. Raises ConnectionError or TimeoutError."""
        body, deadline = messages.encode(request), self._deadline()
        async with self._pool.slot(deadline, is_urgent):
            retry = retrying()
            while True:
                connection = await self._pool.connect(deadline)
                attempt = min(deadline, now_s() + ATTEMPT_S)
                try:
                    return await self._ask(connection, path, body, kind, attempt)
                except EtcdRefused:
                    raise
                except (ConnectionError, TimeoutError) as error:
                    self._pool.leave(connection.endpoint, error)
                    pause_s = retry.next_s()
                    if now_s() + pause_s >= deadline:
                        raise
                await asyncio.sleep(pause_s)

    async def change(self, path: str, request: dict[str, Any], kind: type[T]) -> T:
        """Sends a change once. Raises UnknownResult, or, if it certainly was not applied,
        ConnectionError or TimeoutError."""
        body, deadline = messages.encode(request), self._deadline()
        async with self._pool.slot(deadline):
            connection = await self._pool.connect(deadline)
            try:
                return await self._ask(connection, path, body, kind, deadline)
            except EtcdRefused:
                raise
            except (ConnectionError, TimeoutError) as error:
                self._pool.leave(connection.endpoint, error)
                raise UnknownResult(
                    f"etcd may or may not have applied the change: {error}"
                ) from error

    async def stream(self, path: str, request: dict[str, Any]) -> EtcdConnection:
        """Requests an endless response; the caller closes the returned connection."""
        deadline = self._deadline()
        connection = await self._pool.connect(deadline)
        try:
            async with asyncio.timeout_at(deadline):
                token = self._token or ""
                status = await connection.start_stream(path, messages.encode(request), token)
                if status != 200:
                    line = await connection.next_line() or b""
                    raise self._judge(connection.endpoint, messages.read_failure(line), token)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise late(connection.endpoint, self._timeout_s) from error
            raise
        self._pool.add_stream(connection)
        return connection

    def leave(self, endpoint: EtcdEndpoint, error: Exception) -> None:
        """Switches to the next endpoint after a stream of this one failed."""
        self._pool.leave(endpoint, error)

    def judge(self, endpoint: EtcdEndpoint, failure: messages.EtcdFailure) -> ConnectionError:
        """Error for a failure that was sent within a stream."""
        return self._judge(endpoint, failure, self._token)

    async def check(self, endpoint: EtcdEndpoint) -> None:
        """Checks that the member responds; raises ConnectionError or TimeoutError."""
        await self._pool.check(endpoint, self._deadline())

    @property
    def is_closed(self) -> bool:
        return self._pool.is_closed

    def close(self) -> None:
        self._pool.close()

    # One request.

    async def _ask(
        self, connection: EtcdConnection, path: str, body: bytes, kind: type[T], deadline: float
    ) -> T:
        endpoint = connection.endpoint
        started = now_s()
        try:
            async with asyncio.timeout_at(deadline):
                try:
                    answer = await self._exchange(connection, path, body)
                except EtcdRefused as refused:
                    if refused.code != messages.CODE_UNAUTHENTICATED:
                        raise
                    # The token has expired. Nothing was applied, so a retry is safe.
                    await self._authorize(connection)
                    answer = await self._exchange(connection, path, body)
                result = messages.decode(kind, answer)
        except TimeoutError as error:
            connection.close()
            raise late(endpoint, now_s() - started) from error
        except msgspec.DecodeError as error:
            connection.close()
            raise Unclear(f"{endpoint} does not respond like etcd: {error}") from error
        except EtcdRefused:
            self._pool.release(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._pool.release(connection)
        return result

    async def _exchange(self, connection: EtcdConnection, path: str, body: bytes) -> bytes:
        token = self._token or ""
        status, answer = await connection.ask("POST", path, body, token)
        if status == 200:
            return answer
        raise self._judge(connection.endpoint, messages.read_failure(answer), token)

    def _judge(
        self, endpoint: EtcdEndpoint, failure: messages.EtcdFailure, token: str | None
    ) -> ConnectionError:
        told = failure.message or f"code {failure.code}"
        if failure.code not in messages.NOT_DONE and "CommonName" not in told:
            return Unclear(f"{endpoint} failed: {told}")
        code = failure.code
        if "auth store is old" in told:  # Users or roles have changed since the token was issued.
            code = messages.CODE_UNAUTHENTICATED
        if code == messages.CODE_UNAUTHENTICATED and self._token == token:
            self._token = None
        return EtcdRefused(f"{endpoint} refused: {told}{_advice(told)}", code)

    async def _authorize(self, connection: EtcdConnection) -> None:
        """Requests a token if a user is configured and there is no token."""
        config = self._config
        if not config.user or self._token is not None:
            return
        async with self._signing_in:
            if self._token is not None:
                return
            body = messages.encode({"name": config.user, "password": config.password})
            status, answer = await connection.ask("POST", "/v3/auth/authenticate", body, "")
            if status == 200:
                try:
                    self._token = messages.decode(messages.TokenAnswer, answer).token
                except msgspec.DecodeError as error:
                    raise Unclear(f"{connection.endpoint} did not send a token: {error}") from error
                return
            failure = messages.read_failure(answer)
            if failure.code != messages.CODE_FAILED_PRECONDITION:
                raise self._judge(connection.endpoint, failure, None)
            # Like etcd's own client: the configured user takes effect once it is enabled.
            log.warning("authentication is disabled in etcd at %s", connection.endpoint)
            self._token = ""

    def _deadline(self) -> float:
        return now_s() + self._timeout_s


def _advice(told: str) -> str:
    """Advice for common refusals."""
    for text, advice in (
        ("user name is empty", "it requires a user and a password: set them"),
        ("invalid user ID or password", "check the user and the password"),
        ("permission denied", "grant the user's role readwrite on the prefix"),
        ("space exceeded", "compact and defragment it, then disarm its NOSPACE alarm"),
        ("CommonName", "use a client certificate without a common name, only with SANs"),
        ("too many operations", "it was started with --max-txn-ops below 128"),
    ):
        if text in told:
            return f" ({advice})"
    return ""
