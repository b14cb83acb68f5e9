"""What a handler of the SQS and SNS doors sees: the node, and who asks for what.

A handler takes a `AwsCall` and a request and answers with the fields of the JSON protocol, or
raises Fault or Refused. Queues are topics; a topic that Kafka clients made is a queue too.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.move_tasks import MoveTasks
from penstock.gateway.core.permissions import may, require_topic
from penstock.gateway.http.request_io import ClientWatch
from penstock.gateway.sqs.errors import no_queue
from penstock.gateway.sqs.queue_attributes import SqsQueue
from penstock.gateway.sqs.queue_names import arn_of, queue_of_url, url_of
from penstock.gateway.sqs.requests import Request

Answer = dict[str, object]


@dataclass(frozen=True, slots=True)
class AwsCall:
    """One request: on whose behalf, and how the caller calls this broker."""

    gateway: Gateway
    principal: Principal
    base_url: str
    """Like http://localhost:8080."""
    region: str
    moves: MoveTasks
    """The tasks that move messages between queues."""
    client: Callable[[], ClientWatch]
    """Watches the client while a call waits."""
    trace: str | None = None
    """The trace that the request says it is of (X-Amzn-Trace-Id)."""

    @property
    def node(self) -> Context:
        return self.gateway.ctx

    def queue(self, url: str, *needs: Operation) -> SqsQueue:
        """The queue behind a URL, if the caller has the rights that are needed."""
        return self.queue_named(queue_of_url(url), *needs)

    def queue_named(self, name: str, *needs: Operation) -> SqsQueue:
        for operation in needs:
            require_topic(self.node, self.principal, operation, name)
        topic = self.node.image.topics.get(name)
        if topic is None or topic.is_internal:
            raise no_queue()
        return self.queue_of(topic)

    def may_see(self, name: str) -> bool:
        """Whether the caller may know of a topic."""
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
    """What a door can do: the request, and who answers it."""

    request: type[Request]
    handler: Callable[[AwsCall, Any], Coroutine[Any, Any, Answer]]
