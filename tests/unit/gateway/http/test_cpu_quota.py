"""Quotas at doors: told when to come back, in the words of each dialect."""

import asyncio
import json
from typing import Any

import pytest

from penstock.broker.api.quota import Throttled
from penstock.cluster.access import quotas
from penstock.gateway.core.caller import Principal
from penstock.gateway.http.cpu_quota import CpuQuota
from penstock.security.acl_types import NODE_USER
from penstock.security.quotas import DEFAULT, Entity
from tests.run_with import run_with
from tests.unit.gateway.http.asking import Web, on_web
from tests.unit.gateway.sqs.calling import Sdk, failure, with_sdk

KILOBYTE = "x" * 1_000


async def limit(node: Any, entity: Entity, **values: float) -> None:
    ctx = node.ctx
    await ctx.reached(await quotas.alter(ctx.admin.store, ctx.image, entity, values))


@run_with(on_web)
async def test_who_published_too_much_is_told_when_to_come_back(web: Web) -> None:
    await limit(web.node, Entity(DEFAULT), producer_byte_rate=100)
    await web.publish(KILOBYTE)
    answer = await web.post("/topics/t/messages", {"payload": KILOBYTE})
    assert (answer.status, answer.code) == (429, "THROTTLING_QUOTA_EXCEEDED")
    wait_s = int(answer.headers["retry-after"])
    assert 9 <= wait_s <= 10, "a kilobyte takes ten seconds, of which one was saved up"
    await asyncio.sleep(wait_s)
    await web.publish(KILOBYTE)
    assert len(await web.poll(max=10)) == 2, "what was refused was not written"


@run_with(on_web)
async def test_who_received_too_much_waits_before_the_next_message(web: Web) -> None:
    await web.publish(KILOBYTE, KILOBYTE)
    await limit(web.node, Entity(DEFAULT), consumer_byte_rate=100)
    assert len(await web.poll(max=1)) == 1
    answer = await web.get("/topics/t/poll", group="g", max=1)
    assert answer.status == 429
    answer = await web.get("/topics/t/poll", group="h", mode="log", max=1)
    assert answer.status == 429


@run_with(on_web)
async def test_looking_at_messages_is_reading_them(web: Web) -> None:
    """What the console shows is read by portions."""

    await web.publish(KILOBYTE)
    await limit(web.node, Entity(DEFAULT), consumer_byte_rate=100)
    topic, log = web.node.ctx.image.topics["t"], web.gateway.log
    await log.portions(Principal("User:ann"), topic, {0: 0})
    with pytest.raises(Throttled):
        await log.portions(Principal("User:ann"), topic, {0: 0})
    for _ in range(2):
        await log.portions(Principal(f"User:{NODE_USER}"), topic, {0: 0})


@run_with(on_web)
async def test_a_client_id_has_a_quota_of_its_own(web: Web) -> None:
    await limit(web.node, Entity(None, "reports"), producer_byte_rate=100)
    path, body = "/topics/t/messages", {"payload": KILOBYTE}
    for _ in range(2):
        assert (await web.ask("POST", path, body)).status < 300
    assert (await web.ask("POST", path, body, x_client_id="reports")).status < 300
    assert (await web.ask("POST", path, body, x_client_id="reports")).status == 429


@run_with(on_web)
async def test_topics_are_made_no_faster_than_the_quota_says(web: Web) -> None:
    await limit(web.node, Entity(DEFAULT), controller_mutation_rate=1)
    statuses = [
        (await web.post("/topics", {"name": f"t{at}", "partitions": 10})).status for at in range(3)
    ]
    assert statuses == [201, 201, 429]


@run_with(on_web)
async def test_the_processors_time_is_charged_and_each_dialect_says_so_in_its_own_words(
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
async def test_sqs_throttles_as_amazon_does(sdk: Sdk) -> None:
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
