"""kill -9 and SIGTERM under load, again and again: nothing acknowledged is lost or doubled.

`PENSTOCK_KILLS` says how often (default 12; `make chaos` asks for more), `PENSTOCK_KILLS_SEED`
replays the moments of death of an earlier run.
"""

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.brokers import PenstockProcess
from tests.chaos.writers import Writer, check_all_present, create_topic, high_watermarks
from tests.conftest import FreshBroker
from tests.ports import free_port

KILLS = int(os.environ.get("PENSTOCK_KILLS", "12"))
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", time.time_ns() % 1_000_000))
PARTITIONS = 6
WRITERS = 3
RATE = 2_000

# Each cycle takes a second or two; a slow machine gets ten.
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120 + 10 * KILLS)]


def start(fresh_broker: FreshBroker, tmp_path: Path, topic: str) -> PenstockProcess:
    """A broker that comes back on the same port, with segments small enough to roll."""
    kek = tmp_path / "kek"
    kek.write_text("11" * 32)
    sets = {"encryption.kek.source": f"file:{kek}"}
    broker = fresh_broker(tmp_path / "data", kafka_port=free_port(), sets=sets)
    create_topic(broker.bootstrap, topic, PARTITIONS, segment_bytes="1048576")
    return broker


def encrypt(broker: PenstockProcess, topic: str) -> None:
    """Switches encryption at rest on, under load."""
    entry = ConfigEntry("encryption.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def write_on(broker: PenstockProcess, topic: str) -> list[Writer]:
    names = [f"writer-{number}" for number in range(WRITERS)]
    return [Writer(broker.bootstrap, topic, name, PARTITIONS, RATE) for name in names]


def acknowledged_ends(writers: list[Writer]) -> list[int]:
    """Per partition, the offset after the last acknowledged record."""
    # Writers go on while we look, so each memory is copied in one step first.
    return [
        max((max(list(w.acknowledged[p]), default=-1) for w in writers), default=-1) + 1
        for p in range(PARTITIONS)
    ]


def wait_progress(writers: list[Writer], before: int, timeout_s: float = 60.0) -> None:
    """Some record must be acknowledged in every life of the broker, else nothing is tested."""
    deadline = time.monotonic() + timeout_s
    while sum(w.acknowledged_count for w in writers) <= before:
        errors = [error for w in writers for error in w.errors]
        assert not errors, errors[:3]
        if time.monotonic() >= deadline:
            raise TimeoutError("no record was acknowledged after the restart")
        time.sleep(0.01)


def check_restart(broker: PenstockProcess, topic: str, ends: list[int]) -> None:
    marks = high_watermarks(broker.bootstrap, topic, PARTITIONS)
    for partition, (mark, end) in enumerate(zip(marks, ends, strict=True)):
        assert mark >= end, f"[{partition}] ends at {mark}, {end} were acknowledged"


def test_kill_9_under_load_loses_and_duplicates_nothing(
    fresh_broker: FreshBroker, tmp_path: Path, topic: str
) -> None:
    print(f"PENSTOCK_KILLS={KILLS} PENSTOCK_KILLS_SEED={SEED}")
    moments = random.Random(SEED)
    broker = start(fresh_broker, tmp_path, topic)
    writers = write_on(broker, topic)
    try:
        for number in range(KILLS):
            if number == KILLS // 2:
                encrypt(broker, topic)  # From here on: the promise is the same.
            wait_progress(writers, sum(w.acknowledged_count for w in writers))
            time.sleep(moments.uniform(0.0, 0.8))
            broker.kill()
            ends = acknowledged_ends(writers)
            broker.start()
            check_restart(broker, topic, ends)
    finally:
        for writer in writers:
            writer.finish()
    assert not [error for w in writers for error in w.errors]
    checked = check_all_present(broker.bootstrap, topic, writers)
    print(f"{checked} acknowledged records present once, in order")
    assert checked > KILLS
    assert len(list((tmp_path / "data" / "logs").rglob("key"))) == PARTITIONS
    assert "Traceback" not in broker.log_path.read_text()


def test_clean_stop_under_load_loses_and_duplicates_nothing(
    fresh_broker: FreshBroker, tmp_path: Path, topic: str
) -> None:
    broker = start(fresh_broker, tmp_path, topic)
    writers = write_on(broker, topic)
    try:
        for _ in range(max(2, KILLS // 4)):
            wait_progress(writers, sum(w.acknowledged_count for w in writers))
            time.sleep(0.2)
            assert broker.stop() == 0, broker.log()
            ends = acknowledged_ends(writers)
            broker.start()
            check_restart(broker, topic, ends)
    finally:
        for writer in writers:
            writer.finish()
    assert not [error for w in writers for error in w.errors]
    assert check_all_present(broker.bootstrap, topic, writers) > 0
    assert "Traceback" not in broker.log_path.read_text()
