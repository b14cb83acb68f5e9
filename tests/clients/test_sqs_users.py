"""boto3 with the access key of a user: the rights are the user's, and the key can be taken away."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.clients.aws import client, receive
from tests.guarded import Guarded

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("guarded"))
    try:
        yield guarded
    finally:
        guarded.process.stop()


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    error: dict[str, Any] = caught.value.response["Error"]
    return str(error["Code"])


def test_access_key_allows_what_its_user_is_permitted(broker: Guarded) -> None:
    key, secret = broker.add_key("alice")
    broker.run("topic", "create", "jobs", "--partitions", "1")
    with client("sqs", broker.process.http, key, secret) as sqs:
        with pytest.raises(ClientError) as caught:
            sqs.get_queue_url(QueueName="jobs")
        assert code_of(caught) == "AccessDenied"
        assert "QueueUrls" not in sqs.list_queues()
        names = ("--topic", "jobs", "--group", "sqs")
        broker.run("acl", "allow", "alice", "producer", "consumer", *names)
        url = sqs.get_queue_url(QueueName="jobs")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="hello")
        (message,) = receive(sqs, url)
        assert message["Body"] == "hello"
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    shown = broker.run("user", "key", "list")
    assert key in shown
    assert secret not in shown


@pytest.mark.parametrize(
    ("key", "secret", "code"),
    [(None, "wrong", "SignatureDoesNotMatch"), ("PNSKNOBODY", "x", "InvalidClientTokenId")],
)
def test_wrong_signature_is_refused(
    broker: Guarded, key: str | None, secret: str, code: str
) -> None:
    if key is None:
        key, _ = broker.add_key("bob")
    with client("sqs", broker.process.http, key, secret) as sqs:
        with pytest.raises(ClientError) as caught:
            sqs.list_queues()
        assert code_of(caught) == code


def test_access_key_of_a_deleted_user_is_refused(broker: Guarded) -> None:
    key, secret = broker.add_key("carol")
    with client("sns", broker.process.http, key, secret) as sns:
        assert sns.list_topics()["Topics"] == []
        broker.run("user", "delete", "carol", "-y")
        with pytest.raises(ClientError) as caught:
            sns.list_topics()
        assert code_of(caught) == "InvalidClientTokenId"
