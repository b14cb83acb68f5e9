"""boto3 with `endpoint_url` changed: SQS queues of every kind, and bad input."""

import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.brokers import PenstockProcess
from tests.clients.aws import ONE_TRY, arn_of, client, drain, receive, redrive_policy
from tests.conftest import Broker, FreshBroker

pytestmark = pytest.mark.clients


@pytest.fixture
def sqs(broker: Broker) -> Iterator[Any]:
    if not isinstance(broker, PenstockProcess):
        pytest.skip("needs the HTTP address of the broker")
    with client("sqs", broker.http) as made:
        yield made


@pytest.fixture
def name(topic: str) -> str:
    """A name that SQS takes."""
    return hashlib.sha256(topic.encode()).hexdigest()[:20]


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    code: str = error.value.response["Error"]["Code"]
    return code


def test_queue_actions_cover_its_whole_life(sqs: Any, name: str) -> None:
    url = sqs.create_queue(
        QueueName=name, Attributes={"VisibilityTimeout": "60"}, tags={"team": "a"}
    )["QueueUrl"]
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert url in sqs.list_queues(QueueNamePrefix=name[:10])["QueueUrls"]
    attributes = {
        "text": {"DataType": "String", "StringValue": "é"},
        "number": {"DataType": "Number", "StringValue": "1.5"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sent = sqs.send_message(QueueUrl=url, MessageBody="hello", MessageAttributes=attributes)
    (message,) = receive(sqs, url)
    assert (message["Body"], message["MessageAttributes"]) == ("hello", attributes)
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["MessageId"] == sent["MessageId"]
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (shown["VisibilityTimeout"], shown["ApproximateNumberOfMessagesNotVisible"]) == (
        "60",
        "1",
    )
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )
    (again,) = receive(sqs, url)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    assert receive(sqs, url, WaitTimeSeconds=0) == []
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
    sqs.purge_queue(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=name)


def test_boto3_resources_work(broker: PenstockProcess, name: str) -> None:
    resource = boto3.resource(
        "sqs",
        endpoint_url=broker.http,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=ONE_TRY,
    )
    queue = resource.create_queue(QueueName=name)
    queue.send_messages(Entries=[{"Id": str(n), "MessageBody": f"m{n}"} for n in range(10)])
    seen: list[str] = []
    while len(seen) < 10:
        for message in queue.receive_messages(MaxNumberOfMessages=10, WaitTimeSeconds=5):
            seen.append(message.body)
            message.delete()
    assert sorted(seen) == sorted(f"m{n}" for n in range(10))
    assert resource.get_queue_by_name(QueueName=name).attributes["VisibilityTimeout"] == "30"
    resource.meta.client.close()


def test_many_consumers_share_a_queue_without_duplicates(
    sqs: Any, broker: PenstockProcess, name: str
) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    count = 500
    for start in range(0, count, 10):
        rows = [{"Id": str(n), "MessageBody": str(start + n)} for n in range(10)]
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=rows)["Successful"]) == 10
    seen: list[int] = []

    def consume() -> None:
        with client("sqs", broker.http) as own:
            while got := receive(own, url, WaitTimeSeconds=2):
                seen.extend(int(message["Body"]) for message in got)
                own.delete_message_batch(
                    QueueUrl=url,
                    Entries=[
                        {"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]}
                        for n, m in enumerate(got)
                    ],
                )

    threads = [threading.Thread(target=consume) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(count))


def test_fifo_queue_keeps_order_and_deduplicates(sqs: Any, name: str) -> None:
    url = sqs.create_queue(
        QueueName=name + ".fifo",
        Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
    )["QueueUrl"]
    for number in range(40):
        for _ in range(2):
            sqs.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId=str(number % 4))
    got = drain(sqs, url, 40)
    assert receive(sqs, url, WaitTimeSeconds=0) == []
    for group in "0123":
        mine = [m for m in got if m["Attributes"]["MessageGroupId"] == group]
        assert [int(m["Body"]) for m in mine] == list(range(int(group), 40, 4))
        numbers = [m["Attributes"]["SequenceNumber"] for m in mine]
        assert numbers == sorted(numbers)


def test_deduplication_scope_can_be_the_message_group(sqs: Any, name: str) -> None:
    attributes = {
        "FifoQueue": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    url = sqs.create_queue(QueueName=name + ".fifo", Attributes=attributes)["QueueUrl"]
    for group in "abab":
        sqs.send_message(
            QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId="same"
        )
    assert [message["Body"] for message in drain(sqs, url, 2)] == ["a", "b"]
    assert receive(sqs, url, WaitTimeSeconds=0) == []


def test_dead_letters_are_redriven(sqs: Any, name: str) -> None:
    dead = sqs.create_queue(QueueName=name + "-dead")["QueueUrl"]
    arn = arn_of(sqs, dead)
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": redrive_policy(arn, 1)})[
        "QueueUrl"
    ]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    for number in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    given_up = 0
    while given_up < 5:
        given_up += len(receive(sqs, url, VisibilityTimeout=0))
    messages: list[Any] = []
    while len(messages) < 5:
        messages += receive(sqs, dead, VisibilityTimeout=5)
    assert messages[0]["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, url)
    for message in messages:
        sqs.change_message_visibility(
            QueueUrl=dead, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
    sqs.start_message_move_task(SourceArn=arn)
    assert sorted(message["Body"] for message in drain(sqs, url, 5)) == list("01234")
    (task,) = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    assert (task["Status"] in ("RUNNING", "COMPLETED"), task["SourceArn"]) == (True, arn)


def test_invalid_input_gets_the_amazon_errors(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    errors = sqs.exceptions
    sqs.send_message(QueueUrl=url, MessageBody="kept")
    (message,) = receive(sqs, url)
    handle = message["ReceiptHandle"]
    one = {"Id": "1", "MessageBody": "m"}
    for expected, call, values in (
        (errors.QueueDoesNotExist, sqs.send_message, {"QueueUrl": url + "x", "MessageBody": "m"}),
        (errors.ReceiptHandleIsInvalid, sqs.delete_message, {"ReceiptHandle": "foreign"}),
        (errors.InvalidMessageContents, sqs.send_message, {"MessageBody": "\x00"}),
        (errors.EmptyBatchRequest, sqs.send_message_batch, {"Entries": []}),
        (errors.BatchEntryIdsNotDistinct, sqs.send_message_batch, {"Entries": [one, one]}),
        (
            errors.TooManyEntriesInBatchRequest,
            sqs.send_message_batch,
            {"Entries": [{"Id": str(n), "MessageBody": "m"} for n in range(11)]},
        ),
        (
            errors.InvalidAttributeValue,
            sqs.set_queue_attributes,
            {"Attributes": {"DelaySeconds": "x"}},
        ),
        (errors.QueueNameExists, sqs.create_queue, {"Attributes": {"DelaySeconds": "9"}}),
    ):
        more = {"QueueName": name} if call == sqs.create_queue else {"QueueUrl": url}
        with pytest.raises(expected):
            call(**{**more, **values})
    with pytest.raises(ClientError) as large:
        sqs.send_message(QueueUrl=url, MessageBody="x" * 1_048_577)
    assert code_of(large) == "InvalidParameterValue"
    with pytest.raises(ClientError) as timeout:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=43_201)
    assert code_of(timeout) == "InvalidParameterValue"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    with pytest.raises(ClientError, match="not available for visibility timeout change"):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=1)


def test_queues_and_leases_survive_a_restart(fresh_broker: FreshBroker, name: str) -> None:
    broker = fresh_broker()
    with client("sqs", broker.http) as sqs:
        url = sqs.create_queue(
            QueueName=name, Attributes={"VisibilityTimeout": "600"}, tags={"a": "b"}
        )["QueueUrl"]
        for body in ("held", "deleted", "waiting"):
            sqs.send_message(QueueUrl=url, MessageBody=body)
        held, deleted = receive(sqs, url, 1), receive(sqs, url, 1)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=deleted[0]["ReceiptHandle"])
    broker.kill()
    broker.start()
    with client("sqs", broker.http) as sqs:
        shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert shown["VisibilityTimeout"] == "600"
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "b"}
        assert [message["Body"] for message in receive(sqs, url)] == ["waiting"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=held[0]["ReceiptHandle"])
        assert receive(sqs, url, WaitTimeSeconds=0) == []


def test_signatures_are_checked_where_credentials_are_configured(
    fresh_broker: FreshBroker, name: str
) -> None:
    broker = fresh_broker(sets={"sqs.credentials": "AKIA1:wJalr/XUtn+FEMI=,AKIA2:other"})
    for service, action in (("sqs", "list_queues"), ("sns", "list_topics")):
        with client(service, broker.http, "AKIA1", "wJalr/XUtn+FEMI=") as good:
            getattr(good, action)()
        for key, secret, code in (
            ("AKIA1", "wrong", "SignatureDoesNotMatch"),
            ("AKIA3", "other", "InvalidClientTokenId"),
        ):
            with client(service, broker.http, key, secret) as bad, pytest.raises(ClientError) as no:
                getattr(bad, action)()
            assert code_of(no) == code
    with client("sqs", broker.http, "AKIA2", "other") as sqs:
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="ä" * 1000)
        assert drain(sqs, url, 1)[0]["Body"] == "ä" * 1000
