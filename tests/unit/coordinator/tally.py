"""A machine small enough to see through: it counts, by name, and can be asked to wait."""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Decision, Token
from penstock.coordinator.runtime.shard_host import ShardHost
from penstock.coordinator.runtime.shard_runtime import Effect, ShardRuntime
from tests.unit.broker.api.harness import Node

TOPIC = "__consumer_offsets"


class Tally:
    """Counts are durable, parked tokens are not."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.parked: list[Token] = []
        self.gone: list[Token] = []
        self.loaded_ms: int | None = None
        self.due_ms: int | None = None
        self.ticks: list[int] = []

    def apply(self, key: bytes, value: bytes | None) -> None:
        assert value != b"broken", "a record that the machine cannot take"
        if value is None:
            self.counts.pop(key, None)
        else:
            self.counts[key] = int(value)

    def loaded(self, now_ms: int) -> None:
        self.loaded_ms = now_ms

    def deadline(self) -> int | None:
        return self.due_ms

    def tick(self, now_ms: int) -> Decision:
        self.ticks.append(now_ms)
        self.due_ms = None
        parked, self.parked = self.parked, []
        return Decision(
            ((b"ticks", b"%d" % len(self.ticks)),), tuple((t, "ticked") for t in parked)
        )

    def dropped(self, token: Token) -> None:
        self.gone.append(token)

    # Calls.

    def count(self, name: bytes, token: Token) -> Decision:
        number = self.counts.get(name, 0) + 1
        return Decision(((name, b"%d" % number),), ((token, number),))

    def look(self, name: bytes, token: Token) -> Decision:
        return Decision(replies=((token, self.counts.get(name, 0)),))

    def park(self, token: Token, due_ms: int) -> Decision:
        self.parked.append(token)
        self.due_ms = due_ms
        return Decision()

    def refuse(self) -> Decision:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)

    def wreck(self, token: Token) -> Decision:
        return Decision(((b"wreck", b"broken"),), ((token, "never"),))


Replies = list[Any]


async def host_on(
    node: Node,
    effects: Callable[[ShardRuntime[Tally]], Effect | None] = lambda runtime: None,
    make: Callable[[], Tally] = Tally,
) -> ShardHost[Tally]:
    """Runtimes of tallies on the node's internal topic."""
    if TOPIC not in node.ctx.image.topics:
        await node.ctx.group.groups.ensure()
    host = ShardHost(TOPIC, node.around, make, codec=0, chunk_bytes=10_000, effects=effects)
    host.follow()
    node.background(host.run())
    return host


def count(runtime: ShardRuntime[Tally], name: bytes, replies: Replies) -> Token:
    return runtime.call(lambda shard, token, now_ms: shard.count(name, token), replies.append)


def look(runtime: ShardRuntime[Tally], name: bytes, replies: Replies) -> Token:
    return runtime.call(lambda shard, token, now_ms: shard.look(name, token), replies.append)


def codes(replies: Replies) -> list[ErrorCode]:
    return [reply.code for reply in replies if isinstance(reply, Refused)]
