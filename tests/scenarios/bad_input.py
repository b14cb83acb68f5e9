"""A broker with groups and transactions, and their state as clients see it.

`Stage` puts into a running broker: a classic group with a dynamic and a static member, a consumer
group likewise, each with a committed offset; a transactional id with an open transaction, and one
that has none. `told` is everything that can be asked about them: a refused request must not change
it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.base.ids import TopicId
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.connection import Connection, ConnectionConfig, connect
from penstock.state.groups.consumer_protocol import Subscription, write_subscription
from penstock.wire.messages import RESPONSES
from penstock.wire.messages.classic_groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from penstock.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from penstock.wire.records import Record, encode
from penstock.wire.schema import wire_of
from simulation.random import SimRandom

T = TypeVar("T")

SESSION_MS = 60_000
GROUP_RESOURCE = 32
TXN_TIMEOUT_MS = 600_000
RETRIES_MAX = 100


class Stage:
    """One connection to one broker, on a loop of its own."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.topic = f"{name}-topic"
        self.classic = f"{name}-classic"
        self.consumer = f"{name}-consumer"
        self.open_txn = f"{name}-open"
        self.idle_txn = f"{name}-idle"
        self.instance = f"{name}-instance"
        self.member = self.static = ""
        self.generation = 0
        self.topic_id: TopicId = TopicId(bytes(16))
        self.consumer_epoch = self.consumer_static_epoch = 0
        self.open_id = self.open_epoch = self.idle_id = self.idle_epoch = 0
        self._address = parse_brokers(bootstrap)[0]
        self._loop = asyncio.new_event_loop()
        self._connection = self.run(connect(self._address, ConnectionConfig()))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self._connection.close()
        self.run(self._connection.wait_closed())
        self._loop.close()

    def ask(self, request: Any, version: int | None = None) -> Any:
        """One request, one answer."""
        return self.run(self._ask(self._connection, request, version))

    async def _ask(self, connection: Connection, request: Any, version: int | None = None) -> Any:
        answer = RESPONSES[wire_of(type(request)).key]
        return await connection.call(request, answer, version=version)

    # -- what there is ----------------------------------------------------------------------

    def build(self) -> None:
        self.run(self._create_topic())
        keys = [self.classic, self.consumer]
        self._until_found(0, keys)
        self._until_found(1, [self.open_txn, self.idle_txn])
        self.run(self._join_classic())
        self.configure(self.consumer, "consumer.session.timeout.ms", str(SESSION_MS))
        self._join_consumer()
        self.commit(self.classic, self.generation, self.member, 5)
        self.commit(self.consumer, self.consumer_epoch, "m", 6)
        for _ in range(2):  # To have an older epoch.
            self.open_id, self.open_epoch = self.initialise(self.open_txn)
            self.idle_id, self.idle_epoch = self.initialise(self.idle_txn)
        self.produce(self.open_txn, self.open_id, self.open_epoch)

    async def _create_topic(self) -> None:
        async with Cluster(SimRandom(0), [self._address]) as cluster:
            self.topic_id = await Admin(cluster).create_topic(self.topic, 2, 1)

    def _until_found(self, kind: int, keys: list[str]) -> None:
        """Internal topics are made when they are first asked for."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
        for _ in range(RETRIES_MAX):
            if all(row.error_code == 0 for row in self.ask(request).coordinators):
                return
            self.run(asyncio.sleep(0.05))
        raise TimeoutError(f"no coordinator for {keys}")

    async def _join_classic(self) -> None:
        """Each member uses its own connection: a join waits for the other members."""
        config = ConnectionConfig()
        first, second = [await connect(self._address, config) for _ in range(2)]
        self.member = (await self._ask(first, self.join())).member_id
        alone = await self._ask(first, self.join(self.member))
        self.generation = alone.generation_id
        await self._ask(first, self.sync(self.member))
        joining = asyncio.ensure_future(self._ask(second, self.join(instance=self.instance)))
        heartbeat = HeartbeatRequest(
            group_id=self.classic, generation_id=self.generation, member_id=self.member
        )
        while (await self._ask(first, heartbeat)).error_code == 0:
            await asyncio.sleep(0.02)
        joined = [await self._ask(first, self.join(self.member)), await joining]
        assert [reply.error_code for reply in joined] == [0, 0], joined
        self.static, self.generation = joined[1].member_id, joined[0].generation_id
        given_all = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
            for member_id in (self.member, self.static)
        ]
        syncs = [
            self._ask(first, self.sync(self.member, given=given_all)),
            self._ask(second, self.sync(self.static, instance=self.instance, given=given_all)),
        ]
        assert [reply.error_code for reply in await asyncio.gather(*syncs)] == [0, 0]
        for connection in (first, second):
            connection.close()
            await connection.wait_closed()

    def _join_consumer(self) -> None:
        self.consumer_epoch = self.ask(self.beat("m", 0)).member_epoch
        reply = self.ask(self.beat("s", 0, instance=self.instance))
        self.consumer_static_epoch = reply.member_epoch
        for _ in range(RETRIES_MAX):
            # Until the first has given up what the second is to have.
            epoch = self.ask(self.beat("m", self.consumer_epoch, owned=True)).member_epoch
            if epoch == self.consumer_epoch == self.consumer_static_epoch:
                return
            self.consumer_epoch = epoch
            reply = self.ask(self.beat("s", self.consumer_static_epoch, instance=self.instance))
            self.consumer_static_epoch = reply.member_epoch

    def configure(self, group: str, name: str, value: str) -> None:
        """Sets one of a group's own configs."""
        config = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
        row = IncrementalAlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
        )
        reply = self.ask(IncrementalAlterConfigsRequest(resources=[row], validate_only=False))
        assert reply.responses[0].error_code == 0, reply

    def initialise(self, name: str) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=TXN_TIMEOUT_MS
        )
        for _ in range(RETRIES_MAX):
            reply = self.ask(request)
            if reply.error_code == 0:
                return reply.producer_id, reply.producer_epoch
            self.run(asyncio.sleep(0.05))
        raise TimeoutError(f"{name} gets no producer id: {reply.error_code}")

    # -- requests ---------------------------------------------------------------------------

    def join(self, member_id: str = "", instance: str | None = None, **changes: Any) -> Any:
        told = write_subscription(Subscription(topics=[self.topic]), 3)
        fields: dict[str, Any] = {
            "group_id": self.classic,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": member_id,
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=told)],
        }
        return JoinGroupRequest(**{**fields, **changes})

    def sync(self, member_id: str, given: Any = (), **changes: Any) -> Any:
        fields: dict[str, Any] = {
            "group_id": self.classic,
            "generation_id": self.generation,
            "member_id": member_id,
            "group_instance_id": changes.pop("instance", None),
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": given,
        }
        return SyncGroupRequest(**{**fields, **changes})

    def beat(
        self,
        member_id: str,
        epoch: int,
        instance: str | None = None,
        *,
        owned: bool = False,
        **changes: Any,
    ) -> Any:
        fields: dict[str, Any] = {
            "group_id": self.consumer,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": instance,
            "rebalance_timeout_ms": SESSION_MS,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
        }
        return ConsumerGroupHeartbeatRequest(**{**fields, **changes})

    def commit_request(
        self,
        group: str,
        epoch: int,
        member_id: str,
        *,
        topic: str | None = None,
        index: int = 0,
        metadata: str = "",
        instance: str | None = None,
        offset: int = 9,
    ) -> OffsetCommitRequest:
        row = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(name=topic or self.topic, partitions=[row])],
        )

    def commit(self, group: str, epoch: int, member_id: str, offset: int) -> None:
        reply = self.ask(self.commit_request(group, epoch, member_id, offset=offset), 9)
        assert reply.topics[0].partitions[0].error_code == 0, reply

    def produce_request(self, name: str, producer_id: int, epoch: int) -> ProduceRequest:
        batch = encode(
            [Record(0, 1, None, b"value", ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=0, records=memoryview(batch))
        topic = TopicProduceData(name=self.topic, partition_data=[data])
        return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[topic])

    def produce(self, name: str, producer_id: int, epoch: int) -> None:
        reply = self.ask(self.produce_request(name, producer_id, epoch), 12)
        assert reply.responses[0].partition_responses[0].error_code == 0, reply

    # -- observed state
    # -----------------------------------------------------------------------------

    def told(self) -> list[Any]:
        """Everything that can be asked about what was built."""
        groups = [self.classic, self.consumer]
        producers = DescribeProducersTopicRequest(name=self.topic, partition_indexes=[0, 1])
        return [
            self.ask(DescribeGroupsRequest(groups=[self.classic])),
            self.ask(
                ConsumerGroupDescribeRequest(
                    group_ids=[self.consumer], include_authorized_operations=False
                )
            ),
            sorted(
                (row.group_id, row.group_state, row.group_type)
                for row in self.ask(ListGroupsRequest()).groups
            ),
            [
                self.ask(
                    OffsetFetchRequest(
                        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]
                    ),
                    9,
                )
                for group in groups
            ],
            self.ask(DescribeTransactionsRequest(transactional_ids=[self.open_txn, self.idle_txn])),
            sorted(
                (row.transactional_id, row.producer_id, row.transaction_state)
                for row in self.ask(ListTransactionsRequest()).transaction_states
            ),
            self.ask(DescribeProducersRequest(topics=[producers])),
        ]
