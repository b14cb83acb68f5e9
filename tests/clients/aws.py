"""boto3 clients of a broker: only `endpoint_url` differs from Amazon."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config

REGION = "eu-central-1"
ONE_TRY = Config(retries={"total_max_attempts": 1}, region_name=REGION)
Table = dict[str, Any]


@contextmanager
def client(service: str, url: str, key: str = "key", secret: str = "secret") -> Iterator[Any]:
    made = boto3.client(
        service,
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=ONE_TRY,
    )
    try:
        yield made
    finally:
        made.close()


def arn_of(sqs: Any, url: str) -> str:
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    arn: str = answer["Attributes"]["QueueArn"]
    return arn


def receive(sqs: Any, url: str, count: int = 10, **more: Any) -> list[Table]:
    answer = sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=count,
        MessageSystemAttributeNames=["All"],
        MessageAttributeNames=["All"],
        **{"WaitTimeSeconds": 5, **more},
    )
    messages: list[Table] = answer.get("Messages", [])
    return messages


def drain(sqs: Any, url: str, count: int) -> list[Table]:
    """Receives `count` messages, each deleted as it arrives."""
    found: list[Table] = []
    while len(found) < count:
        got = receive(sqs, url, WaitTimeSeconds=10)
        assert got, f"only {len(found)} of {count} came"
        rows = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(got)]
        answer = sqs.delete_message_batch(QueueUrl=url, Entries=rows)
        assert len(answer["Successful"]) == len(got), answer
        found += got
    return found


def redrive_policy(arn: str, count: int) -> str:
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": count})
