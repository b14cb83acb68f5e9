"""Administration requests go to the controller, and are not repeated after an unknown outcome."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.admin import TOPIC, Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import ConnectionLost
from penstock.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.model import CLOSE, ModelBroker, topic_id, with_model


def created(name: str, code: ErrorCode = ErrorCode.NONE) -> CreateTopicsResponse:
    row = CreatableTopicResult(
        name=name, topic_id=topic_id(name), error_code=int(code), error_message=None
    )
    return CreateTopicsResponse(topics=[row])


@run_with(with_model)
async def test_broker_that_is_not_the_controller_redirects(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    answers = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def create(request: CreateTopicsRequest) -> Any:
        code = answers.pop(0)
        if code is ErrorCode.NONE:
            broker.create("t")
        return created("t", code)

    broker.answers[CreateTopicsRequest] = create
    assert await Admin(cluster).create_topic("t") == topic_id("t")
    assert broker.connections == 2  # The bootstrap connection, and the controller's.


@run_with(with_model)
async def test_many_topics_take_one_request_with_an_outcome_each(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    codes = {"a": ErrorCode.NONE, "b": ErrorCode.INVALID_CONFIG, "c": ErrorCode.NOT_CONTROLLER}
    asked: list[list[str]] = []

    def create(request: CreateTopicsRequest) -> Any:
        names = [topic.name for topic in request.topics]
        asked.append(names)
        rows = [created(name, codes[name]).topics[0] for name in names]
        for name in names:
            if codes[name] is ErrorCode.NONE:
                broker.create(name)
        codes["c"] = ErrorCode.NONE
        return CreateTopicsResponse(topics=rows)

    broker.answers[CreateTopicsRequest] = create
    outcomes = await Admin(cluster).create_topics(["a", "b", "c"])
    assert asked == [["a", "b", "c"], ["c"]], "only what may do better is asked for again"
    assert list(outcomes) == ["a", "b", "c"]
    assert (outcomes["a"], outcomes["c"]) == (topic_id("a"), topic_id("c"))
    refused = outcomes["b"]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.INVALID_CONFIG


@run_with(with_model)
async def test_topics_beyond_the_quota_are_requested_again(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    def create(request: CreateTopicsRequest) -> Any:
        rows: list[CreatableTopicResult] = []
        for number, topic in enumerate(request.topics):
            is_fine = number < 2 and topic.name != "e"
            code = ErrorCode.NONE if is_fine else ErrorCode.POLICY_VIOLATION
            rows += created(topic.name, code).topics
            if is_fine:
                broker.create(topic.name)
        return CreateTopicsResponse(topics=rows)

    broker.answers[CreateTopicsRequest] = create
    outcomes = await Admin(cluster).create_topics(list("abcde"))
    assert [name for name in outcomes if not isinstance(outcomes[name], Refused)] == list("abcd")
    assert broker.count(CreateTopicsRequest) == 3


@run_with(with_model)
async def test_creation_with_an_unknown_outcome_is_not_repeated(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.answers[CreateTopicsRequest] = lambda request: CLOSE
    with pytest.raises(ConnectionLost):
        await Admin(cluster).create_topic("t")
    assert broker.count(CreateTopicsRequest) == 1


@run_with(with_model)
async def test_created_topic_is_visible_when_the_call_returns(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    def create(request: CreateTopicsRequest) -> Any:
        loop.call_later(0.15, broker.create, "t", 3)  # Other brokers learn of it later.
        return created("t")

    broker.answers[CreateTopicsRequest] = create
    await Admin(cluster).create_topic("t", 3)
    assert len(cluster.known_topic("t").partitions) == 3


@run_with(with_model)
async def test_deletion_of_an_unknown_topic_is_refused(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    def delete(request: DeleteTopicsRequest) -> Any:
        (row,) = request.topics
        code = 0 if broker.logs.pop(str(row.name), None) is not None else 3
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(name=row.name, error_code=code)]
        )

    broker.answers[DeleteTopicsRequest] = delete
    broker.create("t")
    await cluster.topic("t")
    await Admin(cluster).delete_topic("t")
    assert "t" not in cluster.metadata.topics
    with pytest.raises(Refused, match="topic 't' does not exist"):
        await Admin(cluster).delete_topic("t")


@run_with(with_model)
async def test_configs_are_sorted_and_have_their_source(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    def describe(request: DescribeConfigsRequest) -> Any:
        rows = [
            DescribeConfigsResourceResult(
                name=name,
                value="1",
                read_only=False,
                config_source=source,
                is_sensitive=False,
                synonyms=[],
                config_type=5,
            )
            for name, source in (("retention.ms", 1), ("flush.ms", 5))
        ]
        result = DescribeConfigsResult(
            error_code=0, error_message=None, resource_type=2, resource_name="t", configs=rows
        )
        return DescribeConfigsResponse(results=[result])

    broker.answers[DescribeConfigsRequest] = describe
    entries = await Admin(cluster).describe_configs(TOPIC, "t")
    assert [(e.name, e.source, e.kind, e.is_default) for e in entries] == [
        ("flush.ms", "default", "long", True),
        ("retention.ms", "topic", "long", False),
    ]
