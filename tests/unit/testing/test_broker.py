"""Claims about the broker inside a test, made with its own hand and plain sockets."""

import asyncio
import gc
import os
import threading
import urllib.request
from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.testing import Broker
from tests.run_with import in_new_loop, run_with


def test_published_message_is_in_the_log() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2, configs={"queue.order": "key"})
        sent = broker.publish("orders", "one", key="k", headers={"a": "1", "b": None}, partition=1)
        assert (sent.partition, sent.offset) == (1, 0)
        broker.publish("orders", b"two", partition=0, delay="15m", priority=3, dedup_id="x")
        two, one = broker.messages("orders")
    assert (one.key, one.value, one.headers) == (b"k", b"one", (("a", b"1"), ("b", None)))
    assert dict(two.headers) == {
        "penstock-delay-ms": b"900000",
        "penstock-priority": b"3",
        "penstock-dedup-id": b"x",
    }


def test_topic_that_is_not_there_has_no_messages_and_no_dead_letters() -> None:
    with Broker() as broker:
        assert broker.messages("nothing") == []
        assert broker.dead_letters("nothing") == []


def test_http_is_served_too() -> None:
    with Broker() as broker, urllib.request.urlopen(f"{broker.http}/healthz") as reply:
        assert reply.status == 200


def test_records_carry_the_time_of_the_clock_that_was_advanced() -> None:
    with Broker() as broker:
        broker.publish("events", "now")
        broker.clock.advance("5d")
        before_ms = broker.clock.now_ms()
        broker.publish("events", "days later")
        first, second = broker.messages("events")
    assert second.timestamp >= before_ms
    assert second.timestamp - first.timestamp >= 5 * 86_400_000


def test_retention_is_counted_in_virtual_time() -> None:
    configs = {"retention.ms": 3_600_000, "segment.ms": 60_000, "file.delete.delay.ms": 0}
    with Broker() as broker:
        broker.create_topic("short", configs=configs)
        broker.publish("short", "old")
        broker.clock.advance("2m")
        broker.publish("short", "new")
        assert [m.value for m in broker.messages("short")] == [b"old", b"new"]
        broker.clock.advance("70m", step="5m")  # As often as retention is looked after.
        assert b"old" not in [m.value for m in broker.messages("short")]


def test_coroutine_on_the_brokers_loop_sleeps_in_virtual_time() -> None:
    async def nap() -> float:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.sleep(3_600)
        return loop.time() - start

    with Broker() as broker:
        slept: list[float] = []
        sleeper = threading.Thread(target=lambda: slept.append(broker.run(nap())))
        sleeper.start()
        while not slept:
            broker.clock.advance("1h")
        sleeper.join()
    assert slept[0] >= 3_600


@run_with(in_new_loop)
async def test_asyncio_test_can_use_it_as_well() -> None:
    with Broker() as broker:
        broker.publish("t", "x")
        await broker.clock.advance_async("1m")
        assert len(broker.messages("t")) == 1


def test_configs_can_be_chosen_and_wrong_ones_are_refused() -> None:
    with Broker({"num.partitions": 3}) as broker:
        broker.publish("t", "x", partition=2)
        with pytest.raises(Refused) as refused:
            broker.create_topic("bad", configs={"queue.order": "alphabetical"})
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        broker.configure_topic("t", {"retention.ms": "1000"})
        broker.configure_group("g", {"share.auto.offset.reset": "earliest"})


def test_stopped_broker_leaves_nothing_behind() -> None:
    gc.collect()
    before = set(threading.enumerate())
    files = os.listdir("/proc/self/fd")
    with Broker() as broker:
        broker.publish("t", "x")
        directory = broker.data_dir
        assert Path(directory).exists()
    assert not Path(directory).exists()
    assert set(threading.enumerate()) <= before
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= len(files)
    with pytest.raises(RuntimeError, match="not running"):
        broker.publish("t", "x")


def test_directory_of_the_tests_own_is_kept_for_the_next_broker(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path / "data")) as broker:
        broker.publish("t", "kept")
    with Broker(data_dir=str(tmp_path / "data")) as broker:
        assert [m.value for m in broker.messages("t")] == [b"kept"]


def test_two_brokers_have_independent_clocks() -> None:
    with Broker() as one, Broker() as other:
        one.clock.advance("1d")
        assert one.clock.now_ms() - other.clock.now_ms() > 80_000_000
        one.publish("t", "x")
        assert other.messages("t") == []
