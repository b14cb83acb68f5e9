"""Amazon resource names (ARNs) of SNS topics and subscriptions.

A topic is `arn:aws:sns:<region>:000000000000:<name>`; a subscription appends its id. SNS topics are
not Kafka topics: an SNS topic may have the same name as a queue.
"""

import re

from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.queue_names import ACCOUNT

NAME_CHARS_MAX = 256

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.fifo)?")


def check_new_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise Fault("InvalidParameter", "Invalid parameter: Topic Name")


def topic_arn(region: str, name: str) -> str:
    return f"arn:aws:sns:{region}:{ACCOUNT}:{name}"


def topic_of_arn(arn: str) -> str:
    return _parts(arn, 6, "TopicArn")[5]


def subscription_arn(region: str, topic: str, subscription_id: str) -> str:
    return f"{topic_arn(region, topic)}:{subscription_id}"


def subscription_of_arn(arn: str) -> tuple[str, str]:
    """Returns the topic's name and the subscription's id."""
    parts = _parts(arn, 7, "SubscriptionArn")
    return parts[5], parts[6]


def _parts(arn: str, count: int, parameter: str) -> list[str]:
    parts = arn.split(":")
    if len(parts) != count or parts[:3] != ["arn", "aws", "sns"] or not all(parts[5:]):
        raise Fault("InvalidParameter", f"Invalid parameter: {parameter}")
    return parts
