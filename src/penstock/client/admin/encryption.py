"""Administration of encryption at rest: the keys of each node, and their rotation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.wire.messages.internal.admin import (
    DescribeKeysRequest,
    DescribeKeysResponse,
    RotateKeysRequest,
    RotateKeysResponse,
)

LOGS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class KeyUse:
    """Key-encryption key on a node; `key_id` is None for logs that are not encrypted."""

    node_id: int
    key_id: str | None
    is_current: bool
    logs: int


class EncryptionAdmin:
    """Encryption keys of the nodes of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def nodes(self) -> list[int]:
        await self._cluster.refresh(())
        return sorted(self._cluster.metadata.brokers)

    async def describe(self) -> list[KeyUse]:
        found = []
        for node_id in await self.nodes():
            connection = await self._cluster.connection(node_id)
            answer = await connection.call(DescribeKeysRequest(), DescribeKeysResponse, version=0)
            check(answer.error_code, answer.error_message, about=f"node {node_id}")
            found += [KeyUse(node_id, one.id, one.is_current, one.logs) for one in answer.keys]
            found.append(KeyUse(node_id, None, False, answer.plain_logs))
        return found

    async def rotate(
        self, nodes: Sequence[int], on_progress: Callable[[int, int, int], None]
    ) -> dict[int, int]:
        """Makes nodes reload their keys and rewrap every log's key with the first one.

        Returns the number of rewrapped logs of each node. `on_progress(node, done, remaining)` is
        called after each step. The rotation is idempotent: after an interruption, call it again.
        """
        rotated = {}
        for node_id in nodes:
            done, reload = 0, True
            while True:
                connection = await self._cluster.connection(node_id)
                request = RotateKeysRequest(reload=reload, logs_max=LOGS_AT_ONCE)
                answer = await connection.call(request, RotateKeysResponse, version=0)
                check(answer.error_code, answer.error_message, about=f"node {node_id}")
                done, reload = done + answer.rewrapped, False
                on_progress(node_id, done, answer.remaining)
                if not answer.remaining or not answer.rewrapped:
                    break
            rotated[node_id] = done
        return rotated
