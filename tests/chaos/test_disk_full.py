"""A full disk: producers get errors, nothing acknowledged is lost, and writes resume with space.

The data directory is a small tmpfs of the test's own. Mounting needs root; without it the test says
so and skips.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.writers import PATIENT, create_topic, high_watermarks, read_partition
from tests.conftest import FreshBroker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]
DISK_MIB = 160
BALLAST_MIB = 60
VALUE = bytes(range(256)) * 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB, part of it taken by a ballast file that can be removed."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "penstock-test", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting a small tmpfs is not permitted here: {done.stderr.strip()}")
    with (mount / "ballast").open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, BALLAST_MIB * 1024 * 1024)
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


class Outcomes:
    """Outcome of each record, in the order of the broker's answers."""

    def __init__(self) -> None:
        self.offsets: dict[int, bytes] = {}
        self.refused: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
            return
        offset = message.offset()
        assert offset is not None
        self.offsets[offset] = message.key() or b""


def write_until(producer: Producer, topic: str, outcomes: Outcomes, enough: str) -> None:
    """Write numbered records until one is refused (or one is acknowledged)."""
    wanted = getattr(outcomes, enough)
    before, deadline = len(wanted), time.monotonic() + 60
    while len(wanted) == before:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"no record was added to {enough} within 60 s")
        for number in range(20):
            producer.produce(topic, VALUE, key=b"%d" % number, on_delivery=outcomes)
        producer.flush(30)


@pytest.mark.parametrize("reserve_mib", [0, 16], ids=["really-full", "down-to-the-reserve"])
def test_full_disk_refuses_writes_and_recovers_with_space(
    fresh_broker: FreshBroker, small_disk: Path, topic: str, reserve_mib: int
) -> None:
    sets = {"disk.reserve.bytes": reserve_mib * 1024 * 1024}
    broker = fresh_broker(small_disk / "data", sets=sets)
    create_topic(broker.bootstrap, topic, 1)
    settings = {"bootstrap.servers": broker.bootstrap, **PATIENT, "delivery.timeout.ms": 3_000}
    producer = Producer({**settings, "linger.ms": 0, "request.timeout.ms": 2_000})
    outcomes = Outcomes()
    write_until(producer, topic, outcomes, "refused")
    assert outcomes.offsets, "the disk was full before the first record"
    assert broker.running, broker.log()
    (end,) = high_watermarks(broker.bootstrap, topic, 1)
    values = read_partition(broker.bootstrap, topic, 0, end)
    assert set(outcomes.offsets) <= set(values), "an acknowledged record is missing"

    (small_disk / "ballast").unlink()
    write_until(producer, topic, outcomes, "offsets")
    broker.kill()
    broker.start()
    (end,) = high_watermarks(broker.bootstrap, topic, 1)
    values = read_partition(broker.bootstrap, topic, 0, end)
    assert set(outcomes.offsets) <= set(values)
    assert all(value == VALUE for value in values.values())
    assert "Traceback" not in broker.log_path.read_text()
