"""Schema registry on this node: the one shard of `__schemas`, here or on another node.

One partition holds everything, so there is one order of registrations and ids are assigned once.
Its leader answers calls; every other node forwards them (`AskRegistry`), and retries for a while
when leadership moves. Workers check schemas, one at a time: see
`penstock.state.registry.compatibility_check`.

Bounds: `CALLS_MAX` calls at a time; `PATIENCE_SECONDS` to find the leader.

Checks that the schema ids of records are registered under their topics' subjects. Answers of the
registry are cached for `REMEMBERED_SECONDS`: a deleted schema is accepted for that long. Negative
answers are not cached, so that a schema may be used as soon as it is registered. Bounds:
`REMEMBERED_MAX` answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import msgspec

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.retry import Retry
from penstock.base.state_machine import Decision, Token
from penstock.client.errors import Unreachable, code_of
from penstock.coordinator.runtime.internal_topics import InternalTopic, InternalTopics
from penstock.coordinator.runtime.shard_host import HostContext, ShardHost
from penstock.state.registry.compatibility_check import (
    CheckPlan,
    CompatibilityVerdict,
    format_text,
    judge,
)
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.registration import Outdated
from penstock.state.registry.requests import (
    AnyCall,
    DeleteConfig,
    DeleteMode,
    DeleteSubject,
    DeleteVersion,
    Proposal,
    Register,
    Vouch,
    decode_call,
    encode_call,
)
from penstock.state.registry.shard import RegistryShard, Unformed
from penstock.wire.messages.internal.admin import AskRegistryRequest, AskRegistryResponse

REMEMBERED_SECONDS = 60.0
REMEMBERED_MAX = 20_000
ASKED_MAX = 1_000
"""Maximum ids looked up for one batch."""
Mark = int | str
"""Id, or guid: a record's reference to its schema."""


class _RegisteredMarks(msgspec.Struct):
    ids: list[int]
    guids: list[str]


class KnownMarks:
    """Cache of ids known under subjects."""

    def __init__(self, ask: Callable[[Vouch], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._until_s: dict[tuple[str, bool, str, Mark], float] = {}

    async def unknown(
        self, topic: str, marks: list[Mark], strategy: str, *, is_key: bool
    ) -> list[Mark]:
        """Returns those of `marks` that are not registered for the topic."""
        now_s = asyncio.get_running_loop().time()
        asked = [
            mark
            for mark in marks
            if self._until_s.get((topic, is_key, strategy, mark), 0.0) <= now_s
        ]
        if not asked:
            return []
        if len(asked) > ASKED_MAX:
            raise Refused(
                ErrorCode.INVALID_RECORD,
                f"a batch refers to more than {ASKED_MAX} schemas: send smaller batches",
            )
        answer = await self._ask(
            Vouch(
                topic,
                is_key,
                strategy,
                tuple(mark for mark in asked if isinstance(mark, int)),
                tuple(mark for mark in asked if isinstance(mark, str)),
            )
        )
        registered = msgspec.json.decode(answer, type=_RegisteredMarks)
        known: set[Mark] = {*registered.ids, *registered.guids}
        self._evict(len(known))
        for mark in asked:
            if mark in known:
                self._until_s[topic, is_key, strategy, mark] = now_s + REMEMBERED_SECONDS
        return [mark for mark in asked if mark not in known]

    def _evict(self, count: int) -> None:
        """Evicts the oldest answers."""
        for key in list(self._until_s)[: max(0, len(self._until_s) + count - REMEMBERED_MAX)]:
            del self._until_s[key]


SCHEMAS = InternalTopic(
    name="__schemas",
    partitions=1,
    replication_factor="schema.registry.topic.replication.factor",
    segment_bytes="schema.registry.topic.segment.bytes",
    min_isr="schema.registry.topic.min.isr",
    configs={"cleanup.policy": "compact", "compression.type": "producer"},
)
KEY = ""
"""The whole registry is in one shard."""
CHANNEL = "registry"
SLOW_CHANNEL = "registry-proposals"
"""Replies keep the order of their requests: reads must not wait for registrations."""
VERSION = 0
LOAD_BYTES = 5 << 20
CODEC = 0
CALLS_MAX = 1_000
PATIENCE_SECONDS = 10.0
PAUSE_SECONDS = (0.02, 0.5)
TIMEOUT_MS = 30_000
PLANS_MAX = 10
MOVING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Another node leads the topic, or will in a moment."""
ONCE = (DeleteVersion, DeleteSubject, DeleteConfig, DeleteMode)
"""Calls that give another answer when repeated, so they are not retried."""


class RegistryCoordinator:
    """Coordinator of this node's registry shard."""

    def __init__(self, around: HostContext, topics: InternalTopics) -> None:
        self._around = around
        self._topics = topics
        self._registering = asyncio.Lock()
        self._calls = 0
        self.marks = KnownMarks(self.ask)
        self.host: ShardHost[RegistryShard] = ShardHost(
            SCHEMAS.name, around, RegistryShard, codec=CODEC, chunk_bytes=LOAD_BYTES
        )

    async def run(self) -> None:
        """Loads the shard when it is led here, until cancelled."""
        await self.host.run()

    # -- asking -----------------------------------------------------------------------------

    async def ask(self, call: AnyCall) -> bytes:
        """Returns the answer as JSON; raises Rejected, or Refused without a registry."""
        if self._calls >= CALLS_MAX:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "too many calls wait for the registry: retry later",
            )
        self._calls += 1
        try:
            return await self._ask_until_led(call)
        finally:
            self._calls -= 1

    async def _ask_until_led(self, call: AnyCall) -> bytes:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_SECONDS
        retry = Retry(self._around.random, *PAUSE_SECONDS)
        while True:
            try:
                await self._topics.ensure(SCHEMAS)
                return await self._ask_leader(call)
            except Refused as refused:
                is_moving = refused.code in MOVING and not isinstance(refused, Rejected)
                if not is_moving or loop.time() >= deadline_s:
                    raise
            await retry.pause()

    async def _ask_leader(self, call: AnyCall) -> bytes:
        image = self._around.watcher.image
        record = image.partition(SCHEMAS.name, 0)
        if record is None or record.leader not in image.brokers:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "the registry's topic has no leader; try again"
            )
        peers = self._around.peers
        if record.leader == peers.node_id:
            return msgspec.json.encode(await self.answer(call))
        return await self._ask_other(record.leader, call)

    async def _ask_other(self, node_id: int, call: AnyCall) -> bytes:
        try:
            response = await self._around.peers.ask(
                node_id,
                AskRegistryRequest(call=encode_call(call)),
                AskRegistryResponse,
                channel=SLOW_CHANNEL if isinstance(call, Proposal) else CHANNEL,
                version=VERSION,
                timeout_ms=TIMEOUT_MS,
            )
        except Unreachable as error:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except (OSError, PeerError) as error:
            if isinstance(call, ONCE):
                raise Rejected(
                    RegistryErrorCode.FORWARDING,
                    f"the outcome of the change is unknown ({error}): read it back, then retry",
                ) from error
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        if response.number:
            raise Rejected(RegistryErrorCode(response.number), response.error_message or "")
        if response.error_code:
            raise Refused(code_of(response.error_code), response.error_message)
        return bytes(response.answer)

    # -- answering --------------------------------------------------------------------------

    async def answer_peer(self, request: AskRegistryRequest) -> AskRegistryResponse:
        """Answers another node's call; refuses unless the topic is led here."""
        try:
            call = decode_call(request.call)
            return AskRegistryResponse(answer=msgspec.json.encode(await self.answer(call)))
        except Rejected as rejected:
            return AskRegistryResponse(
                error_code=rejected.code, error_message=rejected.message, number=rejected.number
            )
        except Refused as refused:
            return AskRegistryResponse(error_code=refused.code, error_message=refused.message)
        except msgspec.DecodeError as error:
            return AskRegistryResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=str(error)
            )

    async def answer(self, call: AnyCall) -> Any:
        """Returns the answer of the shard here, once it is committed."""
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                return await self._answer(call)
        except TimeoutError:
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT,
                "the registry's topic does not accept writes at the moment: retry later",
            ) from None

    async def _answer(self, call: AnyCall) -> Any:
        if isinstance(call, Proposal):
            reply = await self._propose(call)
        else:

            def decide(shard: RegistryShard, token: Token, now_ms: int) -> Decision:
                return shard.answer(call, token)

            reply = await self.host.ask(KEY, decide)
        if isinstance(reply, Unformed):
            text = await self._around.workers.run(format_text, reply.source, reply.form)
            reply = {**reply.shown, "schema": text}
        return reply

    async def _propose(self, call: Proposal) -> Any:
        """Plans, has the schema checked, and decides; repeats if the registry changed meanwhile."""

        def plan_it(shard: RegistryShard, token: Token, now_ms: int) -> Decision:
            return Decision(replies=((token, shard.plan(call)),))

        # Lookups change nothing, so they need not wait for registrations.
        async with self._registering if isinstance(call, Register) else nullcontext():
            for _ in range(PLANS_MAX):
                plan: CheckPlan = await self.host.ask(KEY, plan_it)
                verdict: CompatibilityVerdict = await self._around.workers.run(judge, plan)
                try:
                    return await self._conclude(call, plan, verdict)
                except Outdated:
                    continue
        raise Refused(
            ErrorCode.REQUEST_TIMED_OUT, "the registry changed during each attempt: retry later"
        )

    async def _conclude(
        self, call: Proposal, plan: CheckPlan, verdict: CompatibilityVerdict
    ) -> Any:
        def decide(shard: RegistryShard, token: Token, now_ms: int) -> Decision:
            return shard.conclude(call, plan, verdict, token)

        return await self.host.ask(KEY, decide)
