"""Identifiers of queues: name, URL and Amazon resource name (ARN).

A queue's name is its topic's name. A URL is `http://host:port/000000000000/<name>`; only its last
segment counts, so URLs stay valid when the broker's address changes. An ARN is
`arn:aws:sqs:<region>:000000000000:<name>` with the region of the caller's signature.
"""

import re

from penstock.gateway.sqs.errors import Fault, invalid

ACCOUNT = "000000000000"
REGION = "us-east-1"
"""Region of requests without a signature."""
FIFO = ".fifo"
NAME_CHARS_MAX = 80

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.fifo)?")


def is_fifo(queue: str) -> bool:
    return queue.endswith(FIFO)


def check_new_name(name: str, *, is_to_be_fifo: bool) -> None:
    """Refuses names that SQS would refuse for a new queue of this type."""
    is_right = _NAME.fullmatch(name) is not None and len(name) <= NAME_CHARS_MAX
    if is_to_be_fifo and not (is_right and is_fifo(name)):
        raise Fault(
            "InvalidParameterValue",
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            f"underscores, must end with .fifo suffix and be 1 to {NAME_CHARS_MAX} in length",
        )
    if not is_right or (is_fifo(name) and not is_to_be_fifo):
        raise Fault(
            "InvalidParameterValue",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to "
            f"{NAME_CHARS_MAX} in length",
        )


def queue_of_url(url: str) -> str:
    """Returns the queue name in a URL, or a bare name itself."""
    name = url.rstrip("/").rpartition("/")[2]
    if not name:
        raise Fault("InvalidAddress", f"The address {url[:200]} is not valid for this endpoint.")
    return name


def queue_of_arn(arn: str, parameter: str) -> str:
    parts = arn.split(":")
    if len(parts) != 6 or parts[:3] != ["arn", "aws", "sqs"] or not parts[5]:
        raise invalid(parameter, arn, "It must be the ARN of a queue: arn:aws:sqs:REGION:ID:NAME.")
    return parts[5]


def url_of(base_url: str, queue: str) -> str:
    return f"{base_url}/{ACCOUNT}/{queue}"


def arn_of(region: str, queue: str) -> str:
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{queue}"
