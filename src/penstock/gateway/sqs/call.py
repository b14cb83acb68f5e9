"""Call context of the SQS and SNS handlers: the node and the caller.

A handler takes an `AwsCall` and a request, and returns the fields of the JSON protocol's response,
or raises Fault or Refused. Queues are topics; a topic created by a Kafka client is a queue, too.

Limits and responses of batch requests.
"""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.errors import Refused
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.move_tasks import MoveTasks
from penstock.gateway.core.permissions import Principal, may, require_topic
from penstock.gateway.http.request_io import ClientWatch
from penstock.gateway.sqs.errors import Fault, fault_of, no_queue
from penstock.gateway.sqs.queue_attributes import SqsQueue
from penstock.gateway.sqs.queue_names import arn_of, queue_of_url, url_of
from penstock.gateway.sqs.requests import Request

Answer = dict[str, object]


@dataclass(frozen=True, slots=True)
class AwsCall:
    """Context of one request."""

    gateway: Gateway
    principal: Principal
    base_url: str
    """For example http://localhost:8080."""
    region: str
    moves: MoveTasks
    """Move tasks of dead-letter queues."""
    client: Callable[[], ClientWatch]
    """Makes a watch for disconnection while a call waits."""
    trace: str | None = None
    """Trace id of the request (X-Amzn-Trace-Id), if any."""

    @property
    def node(self) -> Context:
        return self.gateway.ctx

    def queue(self, url: str, *needs: Operation) -> SqsQueue:
        """Returns the queue of a URL; refuses unless the caller has the permissions `needs`."""
        return self.queue_named(queue_of_url(url), *needs)

    def queue_named(self, name: str, *needs: Operation) -> SqsQueue:
        for operation in needs:
            require_topic(self.node, self.principal, operation, name)
        topic = self.node.image.topics.get(name)
        if topic is None or topic.is_internal:
            raise no_queue()
        return self.queue_of(topic)

    def may_see(self, name: str) -> bool:
        """True if the caller may describe a topic."""
        return may(self.node, self.principal, Operation.DESCRIBE, ResourceType.TOPIC, name)

    def may_write(self, name: str) -> bool:
        return may(self.node, self.principal, Operation.WRITE, ResourceType.TOPIC, name)

    def queue_of(self, topic: TopicImage) -> SqsQueue:
        return SqsQueue(topic, self.node.configs)

    def url(self, queue: str) -> str:
        return url_of(self.base_url, queue)

    def arn(self, queue: str) -> str:
        return arn_of(self.region, queue)


@dataclass(frozen=True, slots=True)
class Action:
    """Action of SQS or SNS: its request type and handler."""

    request: type[Request]
    handler: Callable[[AwsCall, Any], Coroutine[Any, Any, Answer]]


ENTRIES_MAX = 10
BATCH_BYTES_MAX = 1_048_576

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class BatchItem(Protocol):
    @property
    def id(self) -> str: ...


def check_entries(entries: Sequence[BatchItem], kind: str, *, size: int = 0) -> None:
    """Refuses an invalid batch as a whole; `size`: total bytes of its messages, if any."""
    if not entries:
        raise Fault("EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    if len(entries) > ENTRIES_MAX:
        raise Fault(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent "
            f"{len(entries)}.",
        )
    seen: set[str] = set()
    for entry in entries:
        if not _ID.fullmatch(entry.id):
            raise Fault(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
        if entry.id in seen:
            raise Fault("BatchEntryIdsNotDistinct", f"Id {entry.id} repeated.")
        seen.add(entry.id)
    if size > BATCH_BYTES_MAX:
        raise Fault(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {size} "
            "bytes.",
        )


def batch_answer(
    entries: Sequence[BatchItem], results: Sequence[Mapping[str, object] | Fault]
) -> Answer:
    """Returns one row for each entry: its result, or its error."""
    done: list[object] = []
    failed: list[object] = []
    for entry, result in zip(entries, results, strict=True):
        if isinstance(result, Fault):
            failed.append(
                {
                    "Id": entry.id,
                    "SenderFault": result.is_sender,
                    "Code": result.old_code,
                    "Message": result.message,
                }
            )
        else:
            done.append({"Id": entry.id, **result})
    answer: Answer = {"Successful": done}
    return answer | ({"Failed": failed} if failed else {})


def as_fault(error: Fault | Refused) -> Fault:
    return error if isinstance(error, Fault) else fault_of(error)
