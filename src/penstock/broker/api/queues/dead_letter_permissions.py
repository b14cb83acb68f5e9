"""Who may have dead letters sent where: configs that name the topic that they go to.

The broker writes letters by itself, with whatever key and value their records had. So whoever
names the topic must have the right to write to it, and to create it if it is not there: else a
record that is rejected would be a way around both. The broker's own topics take no letters.
"""

from collections.abc import Mapping

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import ApiFamily
from penstock.broker.api.response_rows import may, may_cluster
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata import topics
from penstock.cluster.metadata.image import INTERNAL_TOPICS
from penstock.coordinator.queues.policy import LETTER_CONFIGS

NOTHING: Mapping[str, str] = {}


def check_letter_boxes(
    ctx: ApiFamily,
    call: Call,
    wanted: Mapping[str, str | None],
    present: Mapping[str, str] = NOTHING,
) -> None:
    """Raises Refused for configs that would have letters go where the caller may not write."""
    for config in LETTER_CONFIGS:
        name = wanted.get(config)
        if not name or name == present.get(config):
            continue
        if name in INTERNAL_TOPICS:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"{config}: {name} is written by the broker only"
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
                f"{config}: {call.principal} may not write to {name}, or not create it",
            )
