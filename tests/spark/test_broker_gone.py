"""Restart of the broker during a stream: no loss and no duplicates.

`PENSTOCK_SPARK_GONE_S` sets the outage in seconds.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import read_stream
from tests.conftest import FreshBroker
from tests.ports import free_port
from tests.spark.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

OUTAGE_S = float(os.environ.get("PENSTOCK_SPARK_GONE_S", "3"))
TIMEOUT_S = 120.0


def test_stream_survives_a_broker_restart(
    spark: Any, fresh_broker: FreshBroker, topic: str, tmp_path: Path
) -> None:
    broker = fresh_broker(kafka_port=free_port())
    loop = asyncio.new_event_loop()
    topics = Topics(loop, broker.bootstrap)
    out = f"{topic}-out"
    for name in (topic, out):
        topics.create(name, 2)
    topics.numbers(topic, 100, partitions=2)
    query = (
        read_stream(
            spark, brokers=broker.bootstrap, subscribe=topic, startingOffsets="earliest", group="g"
        )
        .select("value")
        .writeStream.format("penstock")
        .options(brokers=broker.bootstrap, topic=out)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        _wait_for(query, topics, out, 100)
        broker.kill()
        # The query waits instead of failing.
        assert not query.awaitTermination(OUTAGE_S)
        fresh_broker(broker.data_dir, kafka_port=broker.kafka_port)
        topics.numbers(topic, 100, start=100, partitions=2)
        _wait_for(query, topics, out, 200)
    finally:
        query.stop()
    assert topics.values(out) == list(range(200))
    topics.close()
    loop.close()


def _wait_for(query: Any, topics: Topics, out: str, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(topics.values(out)) < count:
        assert query.isActive, query.exception()
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{len(topics.values(out))} of {count} arrived")
        time.sleep(0.1)
