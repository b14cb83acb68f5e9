"""Required permissions of each route and action, for the documentation.

The gateway checks permissions where it acts (`gateway.core.permissions`), so this table enforces
nothing. Tests verify it, though: they call every route and action without permissions, with exactly
these, and with each of them missing, and fail if a row is missing. An empty row is a listing, which
leaves out what the caller may not describe.
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
RECEIVE: Final = (_topic(Operation.READ), _group(Operation.READ))
INSPECT: Final = (_topic(Operation.DESCRIBE), _group(Operation.DESCRIBE))
LISTING: Final = ()

ROUTES: Final[Mapping[str, tuple[Needs, ...]]] = {
    "POST /topics/{name}/messages": WRITE,
    "GET /topics/{name}/poll": RECEIVE,
    "GET /topics/{name}/stream": RECEIVE,
    "POST /ack": RECEIVE,
    "POST /nack": RECEIVE,
    "POST /reject": RECEIVE,
    "POST /extend": RECEIVE,
    "POST /topics/{name}/ack": RECEIVE,
    "POST /topics/{name}/nack": RECEIVE,
    "POST /topics/{name}/reject": RECEIVE,
    "POST /topics/{name}/extend": RECEIVE,
    "POST /offsets/commit": RECEIVE,
    "GET /offsets": INSPECT,
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
    "GET /topics/{name}/queues/{group}": INSPECT,
    "GET /dlq": LISTING,
    "GET /dlq/{name}": READ,
    "GET /dlq/{name}/stats": READ,
    "GET /dlq/{name}/letters/{letter}": READ,
    "POST /dlq/{name}/redrive": READ,
    "POST /dlq/{name}/purge": DELETE,
    "GET /dlq/{name}/tasks": READ,
    "GET /dlq/{name}/tasks/{task}": READ,
    "DELETE /dlq/{name}/tasks/{task}": READ,
    "POST /topics/{name}/replay": RECEIVE,
}
"""Permissions of REST routes by method and path."""

ACTIONS: Final[Mapping[str, tuple[Needs, ...]]] = {
    "CancelMessageMoveTask": READ,
    "ChangeMessageVisibility": RECEIVE,
    "ChangeMessageVisibilityBatch": RECEIVE,
    "CreateQueue": CREATE,
    "DeleteMessage": RECEIVE,
    "DeleteMessageBatch": RECEIVE,
    "DeleteQueue": DELETE,
    "GetQueueAttributes": INSPECT,
    "GetQueueUrl": DESCRIBE,
    "ListDeadLetterSourceQueues": DESCRIBE,
    "ListMessageMoveTasks": DESCRIBE,
    "ListQueueTags": DESCRIBE,
    "ListQueues": LISTING,
    "PurgeQueue": (_topic(Operation.DELETE), _group(Operation.DESCRIBE)),
    "ReceiveMessage": RECEIVE,
    "SendMessage": WRITE,
    "SendMessageBatch": WRITE,
    "SetQueueAttributes": ALTER_CONFIGS,
    "StartMessageMoveTask": (_topic(Operation.READ), _group(Operation.DESCRIBE)),
    "TagQueue": ALTER_CONFIGS,
    "UntagQueue": ALTER_CONFIGS,
}
"""Permissions of SQS actions. A queue is a topic, read by the group that `sqs.group` names."""

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
"""Permissions of SNS actions. An SNS topic has the permissions of a topic of its name; publishing
also needs WRITE permission on each subscribed queue."""


def shown(needs: tuple[Needs, ...]) -> str:
    """Formats permissions for the documentation."""
    if not needs:
        return "none; the list leaves out what the caller may not describe"
    words = [(need.operation.name.lower(), need.resource.name.lower()) for need in needs]
    return ", ".join(f"{operation} {resource}" for operation, resource in words)
