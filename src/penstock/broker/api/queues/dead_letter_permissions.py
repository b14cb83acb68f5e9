"""Permissions for configs that name a dead-letter topic.

The broker writes dead-lettered messages with the key and value of the rejected record. So a caller
that sets the topic needs permission to write to it, and to create it if it does not exist:
otherwise rejecting a record would bypass both permissions. Internal topics are not allowed.
"""

from collections.abc import Mapping

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import ApiFamily
from penstock.broker.api.response_rows import may, may_cluster
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata import topics
from penstock.cluster.metadata.image import INTERNAL_TOPICS
from penstock.coordinator.queues.policy import DEAD_LETTER_CONFIGS

NOTHING: Mapping[str, str] = {}


def check_dead_letter_topics(
    ctx: ApiFamily,
    call: Call,
    wanted: Mapping[str, str | None],
    present: Mapping[str, str] = NOTHING,
) -> None:
    """Raises Refused for configs that name a dead-letter topic the caller may not write to."""
    for config in DEAD_LETTER_CONFIGS:
        name = wanted.get(config)
        if not name or name == present.get(config):
            continue
        if name in INTERNAL_TOPICS:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"{config}: only the broker may write to {name}"
            )
        try:
            topics.check_name(name)
        except Refused as refused:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{config}: {refused.message}") from refused
        is_allowed = may(ctx, call, Operation.WRITE, name)
        if is_allowed and name not in ctx.image.topics:
            is_allowed = may_cluster(ctx, call, Operation.CREATE) or may(
                ctx, call, Operation.CREATE, name
            )
        if not is_allowed:
            raise Refused(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"{config}: {call.principal} lacks permission to write to {name} or to create it",
            )
