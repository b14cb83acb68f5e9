"""Changing and finding client quotas."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.access import quotas
from penstock.cluster.access.quotas import EntityFilter
from penstock.security.quotas import DEFAULT, Entity, EntityType, QuotaKind
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

ALICE = Entity("alice")


async def change(node: Node, entity: Entity, **values: float | None) -> None:
    ctx = node.ctx
    await ctx.reached(await quotas.alter(ctx.admin.store, ctx.image, entity, values))


@run_with(on_node)
async def test_quotas_are_set_changed_and_removed_one_by_one(node: Node) -> None:
    await change(node, ALICE, producer_byte_rate=1000, request_percentage=12.5)
    await change(node, ALICE, producer_byte_rate=2000)
    assert node.ctx.image.quotas == {
        ALICE: {"producer_byte_rate": 2000, "request_percentage": 12.5}
    }
    assert node.ctx.meter.is_on
    assert node.ctx.meter.times_requests
    await change(node, ALICE, request_percentage=None)
    assert node.ctx.image.quotas == {ALICE: {"producer_byte_rate": 2000}}
    await change(node, ALICE, producer_byte_rate=None, consumer_byte_rate=None)
    assert node.ctx.image.quotas == {}
    assert not node.ctx.meter.is_on


@run_with(on_node)
async def test_validation_only_changes_no_quotas(node: Node) -> None:
    ctx = node.ctx
    wanted = {"producer_byte_rate": 1.0}
    assert await quotas.alter(ctx.admin.store, ctx.image, ALICE, wanted, validate_only=True) == 0
    assert await ctx.admin.store.get("/quotas/user/alice") is None


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        (Entity(), "producer_byte_rate", 1),
        (Entity("alice", None, "10.0.0.1"), "connection_creation_rate", 1),
        (Entity(""), "producer_byte_rate", 1),
        (Entity("x" * 256), "producer_byte_rate", 1),
        (ALICE, "connection_creation_rate", 1),
        (Entity(ip="10.0.0.1"), "producer_byte_rate", 1),
        (ALICE, "unheard_of", 1),
        (ALICE, "producer_byte_rate", 0),
        (ALICE, "producer_byte_rate", -1),
        (ALICE, "producer_byte_rate", 1.5),
        (ALICE, "producer_byte_rate", 1e30),
        (ALICE, "request_percentage", float("nan")),
        (ALICE, "request_percentage", float("inf")),
    ],
)
@run_with(on_node)
async def test_invalid_quotas_are_refused(
    node: Node, *, entity: Entity, name: str, value: float
) -> None:
    with pytest.raises(Refused) as refused:
        await change(node, entity, **{name: value})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message


@run_with(on_node)
async def test_quota_entities_are_limited(node: Node, *, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "ENTITIES_MAX", 1)

    await change(node, ALICE, producer_byte_rate=1)
    await change(node, ALICE, producer_byte_rate=2)
    with pytest.raises(Refused):
        await change(node, Entity("bob"), producer_byte_rate=1)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (EntityFilter(), 5),
        (EntityFilter(is_strict=True), 0),
        (EntityFilter({EntityType.USER: "alice"}), 2),
        (EntityFilter({EntityType.USER: "alice"}, is_strict=True), 1),
        (EntityFilter({EntityType.USER: DEFAULT}), 1),
        (EntityFilter({EntityType.IP: DEFAULT}), 1),
        (EntityFilter(any_named=frozenset({EntityType.USER})), 3),
        (EntityFilter({EntityType.USER: "alice"}, frozenset({EntityType.CLIENT_ID})), 1),
    ],
)
@run_with(on_node)
async def test_quota_filters_match_as_in_kafka(
    node: Node, *, wanted: EntityFilter, found: int
) -> None:
    entities = [ALICE, Entity("alice", "app"), Entity(DEFAULT), Entity(None, "app")]

    for entity in entities:
        await change(node, entity, **{QuotaKind.PRODUCE: 1.0})
    await change(node, Entity(ip=DEFAULT), **{QuotaKind.CONNECTION: 1.0})
    assert len(quotas.matching(node.ctx.image, wanted)) == found
