"""Client quotas of the gateways: each protocol's error names the time to wait."""

import asyncio
import json
from typing import Any

import pytest

from penstock.broker.api.quota import Throttled
from penstock.cluster.access import quotas
from penstock.gateway.core.permissions import Principal
from penstock.gateway.http.cpu_quota import CpuQuota
from penstock.security.acl_types import NODE_USER
from penstock.security.quotas import DEFAULT, Entity
from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

KILOBYTE = "x" * 1_000


async def limit(node: Any, entity: Entity, **values: float) -> None:
    ctx = node.ctx
    await ctx.reached(await quotas.alter(ctx.admin.store, ctx.image, entity, values))


@run_with(on_web)
async def test_publisher_above_quota_gets_429_with_retry_after(web: Web) -> None:
    await limit(web.node, Entity(DEFAULT), producer_byte_rate=100)
    await web.publish(KILOBYTE)
    answer = await web.post("/topics/t/messages", {"payload": KILOBYTE})
    assert (answer.status, answer.code) == (429, "THROTTLING_QUOTA_EXCEEDED")
    wait_s = int(answer.headers["retry-after"])
    assert 9 <= wait_s <= 10, "a kilobyte takes ten seconds, one of which was saved up"
    await asyncio.sleep(wait_s)
    await web.publish(KILOBYTE)
    assert len(await web.poll(max=10)) == 2, "the refused message was not written"


@run_with(on_web)
async def test_receiver_above_quota_waits_for_the_next_message(web: Web) -> None:
    await web.publish(KILOBYTE, KILOBYTE)
    await limit(web.node, Entity(DEFAULT), consumer_byte_rate=100)
    assert len(await web.poll(max=1)) == 1
    answer = await web.get("/topics/t/poll", group="g", max=1)
    assert answer.status == 429
    answer = await web.get("/topics/t/poll", group="h", mode="log", max=1)
    assert answer.status == 429


@run_with(on_web)
async def test_console_reads_are_charged_to_the_fetch_quota(web: Web) -> None:
    """The console reads portions."""

    await web.publish(KILOBYTE)
    await limit(web.node, Entity(DEFAULT), consumer_byte_rate=100)
    topic, log = web.node.ctx.image.topics["t"], web.gateway.log
    await log.portions(Principal("User:ann"), topic, {0: 0})
    with pytest.raises(Throttled):
        await log.portions(Principal("User:ann"), topic, {0: 0})
    for _ in range(2):
        await log.portions(Principal(f"User:{NODE_USER}"), topic, {0: 0})


@run_with(on_web)
async def test_client_id_has_its_own_quota(web: Web) -> None:
    await limit(web.node, Entity(None, "reports"), producer_byte_rate=100)
    path, body = "/topics/t/messages", {"payload": KILOBYTE}
    for _ in range(2):
        assert (await web.ask("POST", path, body)).status < 300
    assert (await web.ask("POST", path, body, x_client_id="reports")).status < 300
    assert (await web.ask("POST", path, body, x_client_id="reports")).status == 429


@run_with(on_web)
async def test_topic_creation_is_limited_by_the_mutation_quota(web: Web) -> None:
    await limit(web.node, Entity(DEFAULT), controller_mutation_rate=1)
    statuses = [
        (await web.post("/topics", {"name": f"t{at}", "partitions": 10})).status for at in range(3)
    ]
    assert statuses == [201, 201, 429]


@run_with(on_web)
async def test_processor_time_is_charged_and_refused_by_each_protocol(
    web: Web,
) -> None:
    spent = {"s": 0.0}

    def processor_s() -> float:
        spent["s"] += 1.0
        return spent["s"]

    web.node.ctx.meter.processor_s = processor_s
    web.app = CpuQuota(web.app, web.gateway)
    await limit(web.node, Entity(DEFAULT), request_percentage=10)
    assert (await web.get("/topics")).status == 200
    assert (await web.get("/topics")).status == 429
    refused = await web.get("/subjects")
    assert (refused.status, refused.json["error_code"]) == (429, 429)
    assert int(refused.headers["retry-after"]) >= 1


@run_with(with_sdk)
async def test_sqs_reports_throttling_like_amazon(sdk: Sdk) -> None:
    url = await sdk.create()
    await limit(sdk.node, Entity(None, "batch"), producer_byte_rate=100)
    sdk.headers["user-agent"] = "Boto3/1.40 md/Botocore#1.40 app/batch cfg/retry-mode#legacy"
    await sdk.send(url, KILOBYTE)
    failed = await failure(sdk.send(url, KILOBYTE))
    assert (failed.name, failed.status) == ("ThrottlingException", 429)
    body = json.dumps({"QueueUrl": url, "MessageBody": "x"}).encode()
    _, headers, _ = await sdk.post(body, {"x-amz-target": "AmazonSQS.SendMessage"})
    assert 9 <= int(headers["retry-after"]) <= 10
    del sdk.headers["user-agent"]
    await sdk.send(url, KILOBYTE)
