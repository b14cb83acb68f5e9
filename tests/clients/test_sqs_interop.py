"""One message over every protocol: boto3 beside Kafka producers and share consumers, and SNS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer

from tests.brokers import PenstockProcess
from tests.clients.aws import arn_of, client, drain, receive
from tests.clients.shares import ShareMember, configure_group
from tests.clients.test_sqs_boto3 import name
from tests.clusters import Nodes
from tests.conftest import Broker, FreshBroker

pytestmark = pytest.mark.clients


@pytest.fixture
def sqs(broker: Broker) -> Iterator[Any]:
    if not isinstance(broker, PenstockProcess):
        pytest.skip("needs the HTTP address of the broker")
    with client("sqs", broker.http) as made:
        yield made


def test_kafka_record_is_received_by_boto3(broker: PenstockProcess, sqs: Any, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, "wörld", key="k", headers={"text": b"v", "raw": b"\xff"})
    assert producer.flush(20) == 0
    url = sqs.get_queue_url(QueueName=topic)["QueueUrl"]
    (message,) = drain(sqs, url, 1)
    assert message["Body"] == "wörld"
    assert message["Attributes"]["MessageGroupId"] == "k"
    assert message["MessageAttributes"] == {
        "text": {"DataType": "String", "StringValue": "v"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\xff"},
    }


def test_message_of_boto3_is_read_by_a_kafka_consumer(
    broker: PenstockProcess, sqs: Any, name: str
) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    number = {"DataType": "Number", "StringValue": "7"}
    sqs.send_message(QueueUrl=url, MessageBody="hello", MessageAttributes={"n": number})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    record = consumer.poll(30)
    assert record is not None
    assert record.error() is None
    assert record.value() == b"hello"
    assert ("n", b"7") in (record.headers() or [])
    consumer.close()


def test_boto3_and_a_share_consumer_share_leases_and_counts(
    broker: PenstockProcess, sqs: Any, name: str
) -> None:
    group = f"workers-{name}"
    configure_group(
        broker.bootstrap,
        group,
        {"share.auto.offset.reset": "earliest", "share.retry.backoff.ms": "0"},
    )
    url = sqs.create_queue(QueueName=name, Attributes={"PenstockGroup": group})["QueueUrl"]
    for number in range(20):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    mine = receive(sqs, url)
    with ShareMember(broker.bootstrap, group, name) as member:
        theirs: list[Any] = []
        while len(mine) + len(theirs) < 20:
            for message in member.poll():
                theirs.append(message)
                member.answer(message)
        member.commit()
        assert receive(sqs, url, WaitTimeSeconds=0) == []
        for message in mine:
            sqs.change_message_visibility(
                QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
        again: list[Any] = []
        while len(again) < len(mine):
            for record in member.poll():
                again.append(record)
                member.answer(record, AcknowledgeType.RELEASE)
        member.commit()
    assert {record.delivery_count() for record in again} == {2}
    last = drain(sqs, url, len(mine))
    assert {message["Attributes"]["ApproximateReceiveCount"] for message in last} == {"3"}
    bodies = [record.value().decode() for record in theirs] + [message["Body"] for message in last]
    assert sorted(map(int, bodies)) == list(range(20))


def test_sns_fans_one_message_out_to_several_queues(fresh_broker: FreshBroker, name: str) -> None:
    broker = fresh_broker()
    with client("sns", broker.http) as sns, client("sqs", broker.http) as sqs:
        arn = sns.create_topic(Name=name)["TopicArn"]
        urls = [sqs.create_queue(QueueName=f"{name}-{n}")["QueueUrl"] for n in range(3)]
        choices: list[dict[str, str]] = [
            {},
            {"RawMessageDelivery": "true"},
            {"RawMessageDelivery": "true", "FilterPolicy": '{"kind": ["big"]}'},
        ]
        for url, attributes in zip(urls, choices, strict=True):
            sns.subscribe(
                TopicArn=arn, Protocol="sqs", Endpoint=arn_of(sqs, url), Attributes=attributes
            )
        big = {"kind": {"DataType": "String", "StringValue": "big"}}
        message_id = sns.publish(TopicArn=arn, Message="one", MessageAttributes=big)["MessageId"]
        batch = sns.publish_batch(
            TopicArn=arn, PublishBatchRequestEntries=[{"Id": "2", "Message": "two"}]
        )
        assert [row["Id"] for row in batch["Successful"]] == ["2"]
    broker.kill()
    broker.start()
    with client("sns", broker.http) as sns, client("sqs", broker.http) as sqs:
        wrapped = [json.loads(message["Body"]) for message in drain(sqs, urls[0], 2)]
        assert [one["Message"] for one in wrapped] == ["one", "two"]
        assert wrapped[0]["MessageId"] == message_id
        assert [message["Body"] for message in drain(sqs, urls[1], 2)] == ["one", "two"]
        assert [message["Body"] for message in drain(sqs, urls[2], 1)] == ["one"]
        assert len(sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]) == 3
        sns.publish(TopicArn=arn, Message="three")
        assert drain(sqs, urls[1], 1)[0]["Body"] == "three"
        with pytest.raises(sns.exceptions.NotFoundException):
            sns.publish(TopicArn=arn + "x", Message="m")


def test_every_node_of_a_cluster_serves_every_queue(tmp_path: Path, name: str) -> None:
    cluster = Nodes(tmp_path / "data", 3, {"num.partitions": 3})
    try:
        nodes = [node.http for node in cluster.nodes.values()]
        with client("sqs", nodes[0]) as one, client("sqs", nodes[1]) as two:
            url = one.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})[
                "QueueUrl"
            ]
            for number in range(30):
                two.send_message(QueueUrl=url, MessageBody=str(number))
            shown = two.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
            assert shown["ApproximateNumberOfMessages"] == "30"
        with client("sqs", nodes[2]) as three, client("sns", nodes[0]) as sns:
            assert sorted(int(m["Body"]) for m in drain(three, url, 30)) == list(range(30))
            arn = sns.create_topic(Name=name)["TopicArn"]
            sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=arn_of(three, url))
            with client("sns", nodes[1]) as other:
                other.publish(TopicArn=arn, Message="m")
            assert json.loads(drain(three, url, 1)[0]["Body"])["Message"] == "m"
            three.send_message(QueueUrl=url, MessageBody="purged")
            three.purge_queue(QueueUrl=url)
            assert receive(three, url, WaitTimeSeconds=1) == []
    finally:
        cluster.stop()


__all__ = ["name"]
