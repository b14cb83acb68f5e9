"""A leader that was paused and wakes with writes in its sockets: none of them is accepted."""

import asyncio
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from penstock.base.errors import ErrorCode
from penstock.client.cluster import parse_brokers
from penstock.client.connection import Connection, ConnectionConfig, connect
from penstock.client.errors import ConnectionLost
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import Record, encode
from tests.brokers import QUICK
from tests.clusters import Nodes
from tests.etcd import require_etcd
from tests.scenarios.test_cluster_up import consume, create, produce, until, values_of

SESSION_S = 3.0
PAUSE_S = 3 * SESSION_S
QUEUED = 50
SETS = {**QUICK, "broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
VERSION = 9  # Names topics by name.


def leader_of(cluster: Nodes, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found: int = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    return found


def request(topic: str, value: str, acks: int) -> ProduceRequest:
    batch = encode([Record(0, int(time.time() * 1000), None, value.encode(), ())])
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=0, records=memoryview(batch))],
            )
        ],
    )


async def answer(connection: Connection, topic: str, value: str, acks: int) -> int:
    """The error code; a connection that ends is not an acknowledgement either."""
    try:
        reply = await connection.send(
            request(topic, value, acks), ProduceResponse, version=VERSION, timeout_ms=60_000
        )
    except ConnectionLost:
        return ErrorCode.NETWORK_EXCEPTION
    (row,) = reply.responses
    (partition,) = row.partition_responses
    return partition.error_code


@pytest.mark.parametrize("acks", [1, -1], ids=["acks=1", "acks=all"])
def test_paused_leader_accepts_nothing_when_it_resumes(tmp_path: Path, acks: int) -> None:
    require_etcd()
    cluster = Nodes(tmp_path / "cluster", sets=SETS)
    try:
        create(cluster, "orders", partitions=1)
        produce(cluster, "orders", values_of("before"))
        leader = leader_of(cluster, "orders")
        node = cluster.nodes[leader]

        async def write_while_paused() -> list[int]:
            (address,) = parse_brokers(node.address)
            connection = await connect(address, ConnectionConfig(in_flight_max=QUEUED))
            node.send(signal.SIGSTOP)
            late = [
                asyncio.ensure_future(answer(connection, "orders", f"late-{number}", acks))
                for number in range(QUEUED)
            ]
            await asyncio.sleep(PAUSE_S)
            node.send(signal.SIGCONT)
            codes = await asyncio.gather(*late)
            connection.close()
            return codes

        codes = asyncio.run(write_while_paused())
        assert len(codes) == QUEUED
        assert ErrorCode.NONE not in codes
        assert leader_of(cluster, "orders") != leader
        produce(cluster, "orders", values_of("after"))
        until(lambda: cluster.describe()["under_replicated"] == 0, "whole again", cluster)
        found = consume(cluster, "orders", 400)
        assert found == sorted([*values_of("before"), *values_of("after")])
    finally:
        cluster.stop()
