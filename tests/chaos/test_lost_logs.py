"""Data directories that lose something while their node is down: nothing acknowledged is lost.

The simulator does this to every kind of file (`simulation.lost_state_faults`); here are the disks,
processes and etcd that people have.
"""

import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from penstock.cluster.replication.high_watermark_checkpoint import HighWatermarkFile
from penstock.runtime.disk import LocalDisk
from tests.brokers import COMMAND
from tests.chaos.cluster_view import wait_whole
from tests.chaos.writers import create_topic, high_watermarks, read_partition
from tests.clusters import Nodes
from tests.conftest import FreshBroker
from tests.waiting import eventually

OLD = Path(__file__).parents[1] / "fixtures" / "data-before-lives.tar.xz"
"""A directory as it was before replicas were entered and lives counted: topic `old`, two
partitions, ten records each, stopped cleanly."""
RECORDS = 300

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


def send(bootstrap: str, topic: str, count: int) -> list[int]:
    """Sends to partition 0; the offsets that were acknowledged, -1 for each that was refused."""
    found: list[int] = []

    def told(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        found.append(-1 if error is not None or offset is None else offset)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "retries": 0, "message.timeout.ms": 10_000}
    )
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0, on_delivery=told)
    assert producer.flush(60) == 0
    return found


def wait_known(data_dir: Path) -> None:
    known = HighWatermarkFile(LocalDisk(), str(data_dir))
    eventually(lambda: RECORDS in known.read().values(), "what was committed is written down")


def directory(data_dir: Path, topic: str) -> Path:
    (found,) = (data_dir / "logs").glob(f"{topic}.*")
    return found / "0"


def test_single_node_refuses_lost_partitions_until_the_loss_is_accepted(
    fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    broker = fresh_broker(tmp_path / "data")
    # Logs of an older version are there, and trusted.
    assert high_watermarks(broker.bootstrap, "old", 2) == [10, 10]
    assert "offline" not in broker.log()
    assert send(broker.bootstrap, "old", 5) == [10, 11, 12, 13, 14]
    create_topic(broker.bootstrap, "new", 1)
    known = HighWatermarkFile(LocalDisk(), str(broker.data_dir))
    eventually(lambda: 15 in known.read().values(), "the high watermark is on disk")
    broker.kill()
    shutil.rmtree(directory(broker.data_dir, "old"))

    broker.start()
    assert "old-0 is offline" in broker.log()
    assert "accept-loss old 0" in broker.log()
    assert send(broker.bootstrap, "old", 1) == [-1]
    assert send(broker.bootstrap, "new", 3) == [0, 1, 2], "others serve on"

    command = [COMMAND, "cluster", "accept-loss", "old", "0", "--data", str(broker.data_dir)]
    subprocess.run([*command, "--yes"], check=True, timeout=60)
    eventually(lambda: send(broker.bootstrap, "old", 1) != [-1], "the loss is accepted")
    assert high_watermarks(broker.bootstrap, "old", 2) == [16, 10], "no offset is given twice"


def test_single_node_without_logs_serves_once_all_losses_are_accepted(
    fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    broker = fresh_broker(tmp_path / "data")
    create_topic(broker.bootstrap, "many", 20)
    create_topic(broker.bootstrap, "one", 1)
    assert send(broker.bootstrap, "one", RECORDS) == list(range(RECORDS))
    wait_known(broker.data_dir)
    broker.kill()
    shutil.rmtree(broker.data_dir / "logs")

    broker.start()
    told = [line for line in broker.log().splitlines() if " offline" in line]
    assert len(told) == 1
    assert "21 replicas are offline" in told[0]
    assert send(broker.bootstrap, "one", 1) == [-1]
    command = [COMMAND, "cluster", "accept-loss", "--all", "--data", str(broker.data_dir)]
    subprocess.run([*command, "--yes"], check=True, timeout=60)
    eventually(lambda: send(broker.bootstrap, "one", 1) != [-1], "the losses are accepted")
    assert high_watermarks(broker.bootstrap, "one", 1)[0] > RECORDS, "no offset is given twice"
    assert high_watermarks(broker.bootstrap, "many", 20) == [0] * 20


def test_lost_offsets_topic_is_not_taken_for_an_empty_one(
    fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    """Empty, it would say that nothing was committed, and that a queue has yet to begin."""
    broker = fresh_broker(tmp_path / "data")
    create_topic(broker.bootstrap, "t", 1)
    assert send(broker.bootstrap, "t", RECORDS) == list(range(RECORDS))
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "readers"}
    consumer = Consumer(config)
    consumer.commit(offsets=[TopicPartition("t", 0, 200)], asynchronous=False)
    consumer.close()
    assert poll(broker.http)[0] == 200
    wait_known(broker.data_dir)
    broker.kill()
    for topic in ("__consumer_offsets", "__share_group_state"):
        for path in (broker.data_dir / "logs").glob(f"{topic}.*"):
            shutil.rmtree(path)

    broker.start()
    consumer = Consumer(config)
    with pytest.raises(KafkaException):
        consumer.committed([TopicPartition("t", 0)], timeout=5)
    consumer.close()
    status, said = poll(broker.http)
    assert status == 503
    assert "the state of this queue cannot be read from __share_group_state-" in said

    command = [COMMAND, "cluster", "accept-loss", "--all", "--data", str(broker.data_dir)]
    subprocess.run([*command, "--yes"], check=True, timeout=60)
    eventually(lambda: poll(broker.http)[0] == 200, "the losses are accepted")


def poll(http: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{http}/topics/t/poll?group=queue", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_whole_replicas_are_not_truncated_for_one_that_lost_its_log(cluster: Nodes) -> None:
    create_topic(cluster.bootstrap, "lost", 1, factor=3, min_insync_replicas="2")
    assert len(send(cluster.bootstrap, "lost", RECORDS)) == RECORDS
    for is_flipped in (True, False):  # After the first crash a checkpoint covers all there is.
        leader = wait_whole(cluster, "lost").leader
        victim = cluster.nodes[leader]
        data_dir = cluster.data_dir / f"node-{leader}"
        wait_known(data_dir)
        for node in cluster.nodes.values():
            node.kill()
        path = directory(data_dir, "lost")
        if is_flipped:
            segment = path / f"{0:020d}.log"
            content = bytearray(segment.read_bytes())
            content[len(content) // 2] ^= 1
            segment.write_bytes(content)
        else:
            shutil.rmtree(path)
        victim.start()
        assert "lost-0 is offline" in victim.log()
        for node in cluster.nodes.values():
            if node is not victim:
                node.start()
        assert wait_whole(cluster, "lost").is_whole(3)
        found = read_partition(cluster.bootstrap, "lost", 0, RECORDS)
        assert sorted(found) == list(range(RECORDS))


def test_whole_replicas_are_not_truncated_for_damage_above_the_checkpoint(cluster: Nodes) -> None:
    create_topic(cluster.bootstrap, "recent", 1, factor=3, min_insync_replicas="2")
    leader = wait_whole(cluster, "recent").leader
    victim = cluster.nodes[leader]
    known = HighWatermarkFile(LocalDisk(), str(cluster.data_dir / f"node-{leader}"))
    path = directory(cluster.data_dir / f"node-{leader}", "recent")
    sent = 0
    name = f"{path.parent.name}/{path.name}"
    while not sent or known.read()[name] >= sent:  # Not written down yet is what matters here.
        assert len(send(cluster.bootstrap, "recent", RECORDS)) == RECORDS
        sent += RECORDS
        for node in cluster.nodes.values():
            node.kill()
        if known.read()[name] >= sent:
            for node in cluster.nodes.values():
                node.start()
            wait_whole(cluster, "recent")
    segment = path / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[-50] ^= 1
    segment.write_bytes(content)
    victim.start()
    assert "More than the last write was in them" in victim.log()
    for node in cluster.nodes.values():
        if node is not victim:
            node.start()
    assert wait_whole(cluster, "recent").is_whole(3)
    assert sorted(read_partition(cluster.bootstrap, "recent", 0, sent)) == list(range(sent))
