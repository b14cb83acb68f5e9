"""Connection limits of the HTTP port: per address, in all, and creation rate."""

from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.access import quotas
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http import body_limit
from penstock.gateway.http.connection_limits import ConnectionLimiter
from penstock.gateway.http.forwarded import read_networks
from penstock.security.quotas import Entity, QuotaKind
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.gateway.http.web import Web, on_web

HERE, THERE = "10.0.0.1", "10.0.0.2"


def with_limiter(
    test: Callable[[Node, ConnectionLimiter], Awaitable[None]], *proxies: str, **configs: str
) -> None:
    async def scene(node: Node) -> None:
        await test(node, ConnectionLimiter(Gateway(node.ctx), read_networks(proxies)))

    on_node(scene, configs={name.replace("_", "."): value for name, value in configs.items()})


def connect(limiter: ConnectionLimiter, address: str) -> bool:
    is_admitted = limiter.admits(address)
    if is_admitted:
        limiter.opened(address)
    return is_admitted


@run_with(with_limiter, max_connections_per_ip="2")
async def test_one_address_cannot_take_all_connections(
    node: Node, limiter: ConnectionLimiter
) -> None:
    assert [connect(limiter, HERE) for _ in range(3)] == [True, True, False]
    assert connect(limiter, THERE)
    assert node.ctx.metrics.connections_refused.value == 1
    limiter.lost(HERE)
    assert connect(limiter, HERE)


@run_with(with_limiter, max_connections_per_ip="1", max_connections_per_ip_overrides=f"{HERE}:2")
async def test_connection_limit_of_an_address_can_be_overridden(
    node: Node, limiter: ConnectionLimiter
) -> None:
    assert [connect(limiter, HERE) for _ in range(3)] == [True, True, False]
    assert [connect(limiter, THERE) for _ in range(2)] == [True, False]


@run_with(with_limiter, max_connections_per_ip="2")
async def test_unfinished_handshakes_count(node: Node, limiter: ConnectionLimiter) -> None:
    assert connect(limiter, HERE)
    assert limiter.admits(HERE, 5, 0)
    assert not limiter.admits(HERE, 5, 1)
    assert not limiter.admits(THERE, 4095, 0)


@run_with(with_limiter, "10.0.0.0/31", max_connections_per_ip="2")
async def test_trusted_proxy_has_no_limit_per_address(
    node: Node, limiter: ConnectionLimiter
) -> None:
    assert all(connect(limiter, HERE) for _ in range(5))


@run_with(with_limiter)
async def test_connection_creation_quota_applies(node: Node, limiter: ConnectionLimiter) -> None:
    ctx = node.ctx
    entity = Entity(ip=HERE)
    before = ctx.image
    await ctx.reached(
        await quotas.alter(ctx.admin.store, ctx.image, entity, {QuotaKind.CONNECTION: 2.0})
    )
    ctx.meter.follow(before, ctx.image)
    assert [connect(limiter, HERE) for _ in range(4)] == [True, True, False, False]
    assert connect(limiter, THERE)


@run_with(on_web)
async def test_body_over_the_limit_is_refused(web: Web) -> None:
    large = b"x" * (web.limit.bytes_max + 1)
    answer = await web.ask("POST", "/topics/t/messages", large)
    assert (answer.status, answer.code) == (413, "MESSAGE_TOO_LARGE")
    assert web.limit.shares.taken == 0


@run_with(on_web)
async def test_body_limit_follows_the_largest_message_size(web: Web) -> None:
    before = web.limit.bytes_max
    configs = {"max.message.bytes": 10 << 20}
    await web.post("/topics", {"name": "t", "configs": configs})
    assert web.limit.bytes_max > max(before, 10 << 20)
    body = b"x" * (9 << 20)
    answer = await web.ask(
        "POST", "/topics/t/messages", body, content_type="application/octet-stream"
    )
    assert answer.status == 200


@pytest.fixture
def small_total_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "BODIES_BYTES_MAX", 100)


@pytest.mark.usefixtures("small_total_limit")
@run_with(on_web)
async def test_bodies_above_the_total_limit_get_503(web: Web) -> None:
    assert web.limit.shares.take("another", 100)
    answer = await web.post("/topics/t/messages", {"payload": "x" * 200})
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    web.limit.shares.give("another", 100)
    assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 200
    assert web.limit.shares.taken == 0


@pytest.fixture
def small_sender_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "HOLDER_BYTES_MAX", 100)


@pytest.mark.usefixtures("small_sender_limit")
@run_with(on_web)
async def test_one_sender_cannot_use_the_total_limit_alone(web: Web) -> None:
    web.who = "User:ann"
    assert web.limit.shares.take(web.who, web.limit.bytes_max), "stands for a body being received"
    assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 503
    web.who = "User:bob"
    assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 200
    web.limit.shares.give("User:ann", web.limit.bytes_max)
    web.who = "User:ann"
    assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 200
    assert web.limit.shares.taken == 0


@run_with(on_web)
async def test_anonymous_bodies_leave_capacity_for_authenticated_ones(
    web: Web, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limit, "ANONYMOUS_BYTES_MAX", 100)

    web.node.rights.is_on = True
    body = {"payload": "x" * 200}
    assert (await web.post("/topics/t/messages", body)).status == 503
    web.who = "User:ann"
    assert (await web.post("/topics/t/messages", body)).status == 200
    assert (web.limit.shares.taken, web.limit.anonymous_bytes) == (0, 0)
