"""Queues: topics with the groups that share them, and counts of their messages by state.

Recommended consumer count of a group, in the format of KEDA's metrics-api scaler.
"""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.client.admin.scaling import ScalingTarget
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.request_io import (
    integer,
    json_answer,
    optional_integer,
    optional_text,
    principal_of,
)
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint

TARGET_SECONDS = 60
REPLICAS_MAX = 1_000


class ScalingAnswer(Struct):
    """`desired_replicas`: number of consumers to scale to; the other fields are its inputs."""

    group: str
    kind: str
    desired_replicas: int
    current_replicas: int
    reason: str
    lag: int
    largest_partition_lag: int
    partitions: int
    read_per_second: float | None
    """None until the second request for the group."""
    written_per_second: float | None
    replica_per_second: float | None


async def show_scaling(gateway: Gateway, request: Request) -> Response:
    group = request.path_params["group"]
    rate = optional_integer(request, "rate", 1, 1_000_000_000)
    target = ScalingTarget(
        target_s=integer(request, "target_delay", TARGET_SECONDS, 1, 86_400),
        low=integer(request, "min", 0, 0, REPLICAS_MAX),
        high=integer(request, "max", REPLICAS_MAX, 1, REPLICAS_MAX),
        rate=rate,
    )
    found = await gateway.scaling.one(principal_of(request), group, target)
    now, scaling = found.now, found.scaling
    return json_answer(
        ScalingAnswer(
            group,
            found.kind,
            scaling.desired,
            found.members,
            scaling.reason,
            now.lag,
            now.largest_lag,
            now.partitions,
            scaling.read_per_s,
            scaling.written_per_s,
            scaling.member_per_s,
        )
    )


class QueueRow(Struct):
    topic: str
    group: str


class QueuesAnswer(Struct):
    queues: list[QueueRow]


class QueuePartitionAnswer(Struct):
    partition: int
    start_offset: int | None
    end_offset: int
    ready: int
    leased: int
    delayed: int
    given_up: int
    unfinished: int


class QueueResponse(Struct):
    """`unfinished`: all messages that are not settled: ready, leased, delayed, given up."""

    topic: str
    group: str
    ready: int
    leased: int
    delayed: int
    given_up: int
    unfinished: int
    oldest_ms: int | None
    partitions: list[QueuePartitionAnswer]


async def list_queues(gateway: Gateway, request: Request) -> Response:
    found = await gateway.queues.all(
        principal_of(request), optional_text(request, "topic"), optional_text(request, "group")
    )
    return json_answer(QueuesAnswer([QueueRow(*row) for row in found]))


async def describe_queue(gateway: Gateway, request: Request) -> Response:
    names = request.path_params
    found = await gateway.queues.one(principal_of(request), names["name"], names["group"])
    return json_answer(
        QueueResponse(
            found.topic,
            found.group,
            found.ready,
            found.leased,
            found.delayed,
            found.given_up,
            found.unfinished,
            found.oldest_ms,
            [
                QueuePartitionAnswer(
                    row.partition,
                    row.start_offset if row.start_offset >= 0 else None,
                    row.high_watermark,
                    row.ready,
                    row.leased,
                    row.delayed,
                    row.given_up,
                    row.unfinished,
                )
                for row in found.partitions
            ],
        )
    )


ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/queues",
        "list queues: every topic with the groups that share it",
        list_queues,
        parameters=(
            Parameter("topic", "only queues of this topic"),
            Parameter("group", "only queues of this group"),
        ),
        answer=QueuesAnswer,
        refusals=(503,),
    ),
    RestEndpoint(
        "GET",
        "/topics/{name}/queues/{group}",
        "show a queue's message counts: ready, leased, delayed, given up",
        describe_queue,
        answer=QueueResponse,
        refusals=(403, 404, 503),
    ),
    RestEndpoint(
        "GET",
        "/groups/{group}/scaling",
        "recommend a number of consumers for a group or queue, for autoscalers",
        show_scaling,
        parameters=(
            Parameter("target_delay", "seconds that a record may wait", "integer", TARGET_SECONDS),
            Parameter("min", "minimum number of consumers", "integer", 0),
            Parameter("max", "maximum number of consumers", "integer", REPLICAS_MAX),
            Parameter("rate", "records per second that one consumer reads, if known", "integer"),
        ),
        answer=ScalingAnswer,
        refusals=(403, 404, 422, 503),
    ),
)
