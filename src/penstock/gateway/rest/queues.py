"""Queues: topics with the groups that share them, and counts of their messages by state."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.request_io import json_answer, optional_text, principal_of
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint


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
)
