"""Verification of plaintext passwords against SCRAM credentials, for every protocol.

Owns: the order of checks (`security.password_check_fairness`), which run off the loop, since each
takes milliseconds by design; and the memory of verified passwords, so that a client that showed one
lately does not wait behind unknown clients. Remembered is a keyed hash of name, password and stored
credential: it is useless in another process, and no longer matches once the password changes or the
user is deleted.

A check that has begun keeps its slot until it ends, even if its client disconnects: the thread is
busy with it all the same.

Bounds: `CHECKS_MAX` at a time, `WAITING_MAX` wait, `PROVEN_MAX` are remembered, for
`PROVEN_SECONDS`.
"""

import asyncio
import hashlib
from functools import partial

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, Workers
from penstock.security import scram
from penstock.security.password_check_fairness import PasswordCheckQueue, place_of
from penstock.security.scram import Credential

CHECKS_MAX = 2
WAITING_MAX = 6_000
PROVEN_MAX = 10_000
PROVEN_SECONDS = 3_600.0
PEPPER_BYTES = 32
LENGTH_BYTES = 4


class Passwords:
    """One per node."""

    def __init__(self, workers: Workers, random: Random) -> None:
        self._workers = workers
        self._pepper = random.random_bytes(PEPPER_BYTES)
        self._queue: PasswordCheckQueue[asyncio.Future[None]] = PasswordCheckQueue(
            CHECKS_MAX, WAITING_MAX
        )
        self._alarm: asyncio.TimerHandle | None = None
        # Expiry times, oldest first.
        self._proven: dict[bytes, float] = {}

    async def fits(
        self, mechanism: str, kept: Credential, name: str, password: str, peer: str
    ) -> bool:
        """Returns True if the password matches the stored credential `kept`.

        Refuses if too many checks wait: a refusal is not a verdict on the password.
        """
        proof = self._proof(kept, name, password)
        if self._is_proven(proof):
            return True
        place = place_of(peer)
        await self._turn(place, name)
        if self._is_proven(proof):
            # An earlier check verified it; after a restart all clients of a user come at once.
            self._finish(place)
            return True
        began_s = asyncio.get_running_loop().time()
        try:
            check = self._workers.run(scram.verifies, mechanism, kept, password)
        except Refused:
            self._finish(place)
            raise
        checked = asyncio.ensure_future(check)
        checked.add_done_callback(partial(self._note, place, proof, began_s))
        return await asyncio.shield(checked)

    async def _turn(self, place: str, name: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._queue.join(place, name, turn):
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "too many logins wait for their password check: retry later",
            )
        self._call()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._queue.leave(place, name, turn)
            else:
                self._finish(place)
            raise

    def _call(self) -> None:
        """Starts every check that may run, and calls itself again when a pause ends."""
        loop = asyncio.get_running_loop()
        while (called := self._queue.call(loop.time())) is not None:
            place, turn = called
            if turn.cancelled():
                self._queue.finish(place, loop.time())
            else:
                turn.set_result(None)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        rested_at = self._queue.rested_at()
        if rested_at is not None:
            self._alarm = loop.call_at(rested_at, self._call)

    def _note(
        self, place: str, proof: bytes, began_s: float, checked: "asyncio.Future[bool]"
    ) -> None:
        now_s = asyncio.get_running_loop().time()
        is_right = not checked.cancelled() and not checked.exception() and checked.result()
        if is_right:
            self._proven.pop(proof, None)
            if len(self._proven) >= PROVEN_MAX:
                del self._proven[next(iter(self._proven))]
            self._proven[proof] = now_s + PROVEN_SECONDS
        self._finish(place, 0.0 if is_right else now_s - began_s)

    def _finish(self, place: str, wasted_s: float = 0.0) -> None:
        self._queue.finish(place, asyncio.get_running_loop().time(), wasted_s)
        self._call()

    def _is_proven(self, proof: bytes) -> bool:
        return asyncio.get_running_loop().time() < self._proven.get(proof, float("-inf"))

    def _proof(self, kept: Credential, name: str, password: str) -> bytes:
        said = hashlib.blake2b(key=self._pepper, digest_size=32)
        for part in (kept.stored_key, name.encode(), password.encode()):
            said.update(len(part).to_bytes(LENGTH_BYTES, "big") + part)
        return said.digest()
