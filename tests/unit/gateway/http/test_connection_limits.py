"""How many connections the HTTP port takes, from whom, and how fast."""

from collections.abc import Awaitable, Callable

from penstock.cluster.access import quotas
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.connection_limits import ConnectionLimiter
from penstock.gateway.http.forwarded import read_networks
from penstock.security.quotas import Entity, QuotaKind
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

HERE, THERE = "10.0.0.1", "10.0.0.2"


def with_admission(
    test: Callable[[Node, ConnectionLimiter], Awaitable[None]], *proxies: str, **configs: str
) -> None:
    async def scene(node: Node) -> None:
        await test(node, ConnectionLimiter(Gateway(node.ctx), read_networks(proxies)))

    on_node(scene, configs={name.replace("_", "."): value for name, value in configs.items()})


def come(admission: ConnectionLimiter, address: str) -> bool:
    is_admitted = admission.admits(address)
    if is_admitted:
        admission.opened(address)
    return is_admitted


@run_with(with_admission, max_connections_per_ip="2")
async def test_one_address_does_not_take_the_places_of_all(
    node: Node, admission: ConnectionLimiter
) -> None:
    assert [come(admission, HERE) for _ in range(3)] == [True, True, False]
    assert come(admission, THERE)
    assert node.ctx.metrics.connections_refused.value == 1
    admission.lost(HERE)
    assert come(admission, HERE)


@run_with(with_admission, max_connections_per_ip="1", max_connections_per_ip_overrides=f"{HERE}:2")
async def test_an_address_may_have_a_limit_of_its_own(
    node: Node, admission: ConnectionLimiter
) -> None:
    assert [come(admission, HERE) for _ in range(3)] == [True, True, False]
    assert [come(admission, THERE) for _ in range(2)] == [True, False]


@run_with(with_admission, max_connections_per_ip="2")
async def test_handshakes_count_as_well(node: Node, admission: ConnectionLimiter) -> None:
    assert come(admission, HERE)
    assert admission.admits(HERE, 5, 0)
    assert not admission.admits(HERE, 5, 1)
    assert not admission.admits(THERE, 4095, 0)


@run_with(with_admission, "10.0.0.0/31", max_connections_per_ip="2")
async def test_a_proxy_stands_for_many(node: Node, admission: ConnectionLimiter) -> None:
    assert all(come(admission, HERE) for _ in range(5))


@run_with(with_admission)
async def test_a_quota_of_new_connections_holds_here_too(
    node: Node, admission: ConnectionLimiter
) -> None:
    ctx = node.ctx
    entity = Entity(ip=HERE)
    before = ctx.image
    await ctx.reached(
        await quotas.alter(ctx.admin.store, ctx.image, entity, {QuotaKind.CONNECTION: 2.0})
    )
    ctx.meter.follow(before, ctx.image)
    assert [come(admission, HERE) for _ in range(4)] == [True, True, False, False]
    assert come(admission, THERE)
