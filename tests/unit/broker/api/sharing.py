"""A member of a share group, as the handlers of a simulated node see one."""

from typing import Any

from penstock.base.ids import NO_TOPIC_ID
from penstock.broker.api.queues.share_acknowledge import share_acknowledge
from penstock.broker.api.queues.share_fetch import share_fetch
from penstock.cluster.metadata import store_keys
from penstock.wire.messages.share import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from penstock.wire.records import batches, decode
from tests.unit.broker.api.harness import Client, Node, Pending

CONFIGS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Run = tuple[int, int, int]
"""First offset, last offset, and a type or a delivery count."""


async def set_up(node: Node, count: int = 0, partitions: int = 1, **configs: str) -> None:
    """A topic with records in its first partition, and a group that reads from its start."""
    await node.create("t", partitions)
    if count:
        await node.produce("t", count)
    values = {"share.auto.offset.reset": "earliest", "share.retry.backoff.ms": "0"}
    values |= {name.replace("_", "."): value for name, value in configs.items()}
    await node.put(store_keys.group_configs_key("g"), store_keys.ConfigsRecord(values=values))


class Member:
    """Counts its session's epochs, as a client does."""

    def __init__(self, node: Node, name: str = "m", group: str = "g") -> None:
        self.node = node
        self.name = name
        self.group = group
        self.client = Client()
        self.epoch = 0

    async def send(
        self,
        *indexes: int,
        acks: dict[int, list[Run]] | None = None,
        forget: tuple[int, ...] = (),
        epoch: int | None = None,
        version: int = 2,
        topic: str = "t",
        **more: Any,
    ) -> Pending:
        """A fetch; `acks` are runs of offsets with a type, by partition."""
        known = self.node.ctx.image.topics.get(topic)
        topic_id = known.id if known is not None else NO_TOPIC_ID
        acks = acks or {}
        rows = [
            ShareFetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=[kind]
                    )
                    for first, last, kind in acks.get(index, ())
                ],
            )
            for index in dict.fromkeys((*indexes, *acks))
        ]
        settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100}
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            batch_size=100,
            topics=[ShareFetchTopic(topic_id=topic_id, partitions=rows)] if rows else [],
            forgotten_topics_data=[ShareFetchForgottenTopic(topic_id=topic_id, partitions=forget)]
            if forget
            else [],
            **{**settings, **more},
        )
        if epoch is None:
            self.epoch += 1
        return await self.node.send(share_fetch, version, request, self.client)

    async def fetch(self, *indexes: int, **how: Any) -> Any:
        return await (await self.send(*indexes, **how)).reply()

    async def answer(
        self,
        runs: list[Run],
        index: int = 0,
        *,
        epoch: int | None = None,
        kinds: list[int] | None = None,
        version: int = 2,
        is_patient: bool = False,
        **more: Any,
    ) -> Any:
        """A ShareAcknowledge for one partition."""
        topic_id = self.node.ctx.image.topics["t"].id
        rows = [
            AcknowledgementBatch(
                first_offset=first,
                last_offset=last,
                acknowledge_types=kinds or [kind],
                is_patient=is_patient,
            )
            for first, last, kind in runs
        ]
        partition = AcknowledgePartition(partition_index=index, acknowledgement_batches=rows)
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])] if runs else [],
            **more,
        )
        if epoch is None:
            self.epoch += 1
        return await self.node.ask(share_acknowledge, version, request, self.client)


def row_of(response: Any, index: int = 0) -> Any:
    (row,) = [
        row
        for topic in response.responses
        for row in topic.partitions
        if row.partition_index == index
    ]
    return row


def acquired(response: Any, index: int = 0) -> list[Run]:
    """Acquired ranges of a partition; its records must be present."""
    rows = [
        row
        for topic in response.responses
        for row in topic.partitions
        if row.partition_index == index
    ]
    if not rows:
        return []
    runs = [(r.first_offset, r.last_offset, r.delivery_count) for r in rows[0].acquired_records]
    view = memoryview(bytes(rows[0].records))
    sent = {record.offset for position, _ in batches(view) for record in decode(view[position:])}
    assert {o for first, last, _ in runs for o in range(first, last + 1)} <= sent
    return runs


def code_of(response: Any, index: int = 0) -> int:
    code: int = row_of(response, index).error_code
    return code
