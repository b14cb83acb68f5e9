"""Which rights each route and action needs: what the documentation shows.

Doors ask for rights where they act (`gateway.core.permissions`), so this table decides nothing. The
tests take it at its word, though: every row is asked without any right, with exactly these, and
with each of them missing, and a route or action without a row fails. An empty row is a listing,
which leaves out what the caller may not describe.
"""

from collections.abc import Mapping
from typing import Final

from penstock.broker.api.route_row import Needs, Operation, ResourceType


def _topic(operation: Operation) -> Needs:
    return Needs(ResourceType.TOPIC, operation)


def _group(operation: Operation) -> Needs:
    return Needs(ResourceType.GROUP, operation)


READ: Final = (_topic(Operation.READ),)
WRITE: Final = (_topic(Operation.WRITE),)
CREATE: Final = (_topic(Operation.CREATE),)
DELETE: Final = (_topic(Operation.DELETE),)
ALTER: Final = (_topic(Operation.ALTER),)
DESCRIBE: Final = (_topic(Operation.DESCRIBE),)
DESCRIBE_CONFIGS: Final = (_topic(Operation.DESCRIBE_CONFIGS),)
ALTER_CONFIGS: Final = (_topic(Operation.ALTER_CONFIGS),)
TAKE: Final = (_topic(Operation.READ), _group(Operation.READ))
LOOK: Final = (_topic(Operation.DESCRIBE), _group(Operation.DESCRIBE))
LISTING: Final = ()

ROUTES: Final[Mapping[str, tuple[Needs, ...]]] = {
    "POST /topics/{name}/messages": WRITE,
    "GET /topics/{name}/poll": TAKE,
    "GET /topics/{name}/stream": TAKE,
    "POST /ack": TAKE,
    "POST /nack": TAKE,
    "POST /reject": TAKE,
    "POST /extend": TAKE,
    "POST /topics/{name}/ack": TAKE,
    "POST /topics/{name}/nack": TAKE,
    "POST /topics/{name}/reject": TAKE,
    "POST /topics/{name}/extend": TAKE,
    "POST /offsets/commit": TAKE,
    "GET /offsets": LOOK,
    "GET /topics": LISTING,
    "POST /topics": CREATE,
    "GET /topics/{name}": DESCRIBE,
    "DELETE /topics/{name}": DELETE,
    "POST /topics/{name}/partitions": ALTER,
    "GET /topics/{name}/configs": DESCRIBE_CONFIGS,
    "PATCH /topics/{name}/configs": ALTER_CONFIGS,
    "GET /groups": LISTING,
    "GET /groups/{group}": (_group(Operation.DESCRIBE),),
    "DELETE /groups/{group}": (_group(Operation.DELETE),),
    "GET /groups/{group}/configs": (_group(Operation.DESCRIBE_CONFIGS),),
    "PATCH /groups/{group}/configs": (_group(Operation.ALTER_CONFIGS),),
    "GET /groups/{group}/scaling": (_group(Operation.DESCRIBE),),
    "GET /queues": LISTING,
    "GET /topics/{name}/queues/{group}": LOOK,
    "GET /dlq": LISTING,
    "GET /dlq/{name}": READ,
    "GET /dlq/{name}/stats": READ,
    "GET /dlq/{name}/letters/{letter}": READ,
    "POST /dlq/{name}/redrive": READ,
    "POST /dlq/{name}/purge": DELETE,
    "GET /dlq/{name}/tasks": READ,
    "GET /dlq/{name}/tasks/{task}": READ,
    "DELETE /dlq/{name}/tasks/{task}": READ,
    "POST /topics/{name}/replay": TAKE,
}
"""By method and path."""

ACTIONS: Final[Mapping[str, tuple[Needs, ...]]] = {
    "CancelMessageMoveTask": READ,
    "ChangeMessageVisibility": TAKE,
    "ChangeMessageVisibilityBatch": TAKE,
    "CreateQueue": CREATE,
    "DeleteMessage": TAKE,
    "DeleteMessageBatch": TAKE,
    "DeleteQueue": DELETE,
    "GetQueueAttributes": LOOK,
    "GetQueueUrl": DESCRIBE,
    "ListDeadLetterSourceQueues": DESCRIBE,
    "ListMessageMoveTasks": DESCRIBE,
    "ListQueueTags": DESCRIBE,
    "ListQueues": LISTING,
    "PurgeQueue": (_topic(Operation.DELETE), _group(Operation.DESCRIBE)),
    "ReceiveMessage": TAKE,
    "SendMessage": WRITE,
    "SendMessageBatch": WRITE,
    "SetQueueAttributes": ALTER_CONFIGS,
    "StartMessageMoveTask": (_topic(Operation.READ), _group(Operation.DESCRIBE)),
    "TagQueue": ALTER_CONFIGS,
    "UntagQueue": ALTER_CONFIGS,
}
"""Of SQS; a queue is a topic, read by the group that `sqs.group` names."""

SNS_ACTIONS: Final[Mapping[str, tuple[Needs, ...]]] = {
    "CreateTopic": CREATE,
    "DeleteTopic": DELETE,
    "GetSubscriptionAttributes": READ,
    "GetTopicAttributes": DESCRIBE,
    "ListSubscriptions": LISTING,
    "ListSubscriptionsByTopic": DESCRIBE,
    "ListTagsForResource": DESCRIBE,
    "ListTopics": LISTING,
    "Publish": WRITE,
    "PublishBatch": WRITE,
    "SetSubscriptionAttributes": READ,
    "SetTopicAttributes": ALTER_CONFIGS,
    "Subscribe": READ,
    "TagResource": ALTER_CONFIGS,
    "Unsubscribe": READ,
    "UntagResource": ALTER_CONFIGS,
}
"""Of SNS, whose topics have the rights of a topic of their name; publishing needs the right to
write to each queue that subscribes as well."""


def told(needs: tuple[Needs, ...]) -> str:
    """In words, for documentation."""
    if not needs:
        return "none; what may not be described is left out"
    words = [(need.operation.name.lower(), need.resource.name.lower()) for need in needs]
    return ", ".join(f"{operation} {resource}" for operation, resource in words)
