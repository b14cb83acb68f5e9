"""Changing configs: set, delete, append, subtract, replace, and what is refused."""

from collections.abc import Awaitable, Callable

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId, show_topic_id
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.config_changes import Alteration, Op, altering, check_group, replacing
from penstock.cluster.configs.config_types import Scope
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata import store_keys, topics
from penstock.cluster.metadata.image import load
from penstock.cluster.metadata.store_keys import PartitionRecord, TopicRecord
from penstock.cluster.metadata.topics import TopicPlan
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with

ID = TopicId(b"i" * 16)


def set_(name: str, value: str | None) -> Alteration:
    return Alteration(name, Op.SET, value)


def refused_by(work: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as refused:
        work()
    return refused.value


def test_alteration_changes_only_its_own_config() -> None:
    edit = altering(
        Scope.TOPIC,
        [set_("retention.ms", "5"), Alteration("segment.ms", Op.DELETE, None)],
    )
    present = {"segment.ms": "7", "retention.bytes": "9"}
    assert edit(present) == {"retention.bytes": "9", "retention.ms": "5"}
    assert present == {"segment.ms": "7", "retention.bytes": "9"}


def test_replacement_removes_all_other_configs() -> None:
    assert replacing(Scope.TOPIC, {"retention.ms": "5"})({"segment.ms": "7"}) == {
        "retention.ms": "5"
    }


@pytest.mark.parametrize(
    ("present", "op", "value", "result"),
    [
        ({}, Op.APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, Op.APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact"}, Op.APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact,delete"}, Op.SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact"}, Op.SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact"}, Op.SUBTRACT, "compact", ""),
    ],
)
def test_list_configs_are_appended_to_and_subtracted_from(
    present: dict[str, str], op: Op, value: str, result: str
) -> None:
    edit = altering(Scope.TOPIC, [Alteration("cleanup.policy", op, value)])
    assert edit(present) == {"cleanup.policy": result}


@pytest.mark.parametrize("op", [Op.APPEND, Op.SUBTRACT])
def test_append_and_subtract_are_refused_for_configs_that_are_not_lists(op: Op) -> None:
    edit = altering(Scope.TOPIC, [Alteration("retention.ms", op, "5")])
    refused = refused_by(lambda: edit({}))
    assert refused.code is ErrorCode.INVALID_CONFIG
    assert "because its type is not LIST" in str(refused)
    unknown = altering(Scope.TOPIC, [Alteration("retention.msss", op, "5")])
    assert refused_by(lambda: unknown({})).code is ErrorCode.INVALID_CONFIG


def test_repeated_config_name_is_refused() -> None:
    refused = refused_by(
        lambda: altering(Scope.TOPIC, [set_("retention.ms", "1"), set_("retention.ms", "2")])
    )
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert "retention.ms" in str(refused)


def test_missing_value_is_refused_unless_deleting() -> None:
    refused = refused_by(lambda: altering(Scope.TOPIC, [set_("retention.ms", None)]))
    assert refused.code is ErrorCode.INVALID_REQUEST
    refused = refused_by(lambda: replacing(Scope.TOPIC, {"retention.ms": None}))
    assert refused.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("scope", "name", "value", "code"),
    [
        (Scope.TOPIC, "retention.msss", "1", ErrorCode.INVALID_CONFIG),
        (Scope.TOPIC, "retention.ms", "x", ErrorCode.INVALID_CONFIG),
        (Scope.BROKER, "message.max.bytess", "1", ErrorCode.INVALID_REQUEST),
        (Scope.BROKER, "message.max.bytes", "x", ErrorCode.INVALID_REQUEST),
        (Scope.BROKER, "num.partitions", "3", ErrorCode.INVALID_REQUEST),
        (Scope.GROUP, "share.session.timeout", "3", ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_config_changes_are_refused(
    scope: Scope, name: str, value: str, code: ErrorCode
) -> None:
    assert refused_by(lambda: altering(scope, [set_(name, value)])({})).code is code
    assert refused_by(lambda: replacing(scope, {name: value})({})).code is code


def test_config_without_effect_is_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    edit = altering(Scope.BROKER, [set_("alter.log.dirs.replication.quota.window.num", "9")])
    assert edit({}) == {"alter.log.dirs.replication.quota.window.num": "9"}
    assert "without effect here: alter.log.dirs.replication.quota.window.num" in caplog.messages
    assert (
        refused_by(
            lambda: altering(
                Scope.BROKER, [set_("alter.log.dirs.replication.quota.window.num", "x")]
            )({})
        ).code
        is ErrorCode.INVALID_REQUEST
    )


def test_read_only_config_cannot_be_deleted() -> None:
    edit = altering(Scope.BROKER, [Alteration("num.partitions", Op.DELETE, None)])
    refused = refused_by(lambda: edit({}))
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert str(refused) == "Cannot update these configs dynamically: num.partitions"


def test_unknown_config_cannot_be_deleted() -> None:
    edit = altering(Scope.TOPIC, [Alteration("nonsense", Op.DELETE, None)])
    assert refused_by(lambda: edit({})).code is ErrorCode.INVALID_CONFIG


def test_combined_configs_are_validated_not_only_the_change() -> None:
    edit = altering(Scope.TOPIC, [set_("min.compaction.lag.ms", "9")])
    assert refused_by(lambda: edit({"max.compaction.lag.ms": "5"})).code is ErrorCode.INVALID_CONFIG


# Groups.


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"consumer.session.timeout.ms": "44999"},
            "greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.session.timeout.ms": "60001"},
            "less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            {"share.record.lock.duration.ms": "1000"},
            "greater than or equal to group.share.min.record.lock.duration.ms",
        ),
        (
            {"share.delivery.count.limit": "11"},
            "less than or equal to group.share.max.delivery.count.limit",
        ),
    ],
)
def test_group_configs_are_bounded_by_broker_configs(values: dict[str, str], words: str) -> None:
    refused = refused_by(lambda: check_group(values, BrokerConfigs()))
    assert refused.code is ErrorCode.INVALID_CONFIG
    assert words in str(refused)


def test_session_timeout_must_exceed_heartbeat_interval() -> None:
    broker = BrokerConfigs({"group.share.min.session.timeout.ms": "1"})
    values = {"share.session.timeout.ms": "5000", "share.heartbeat.interval.ms": "5000"}
    refused = refused_by(lambda: check_group(values, broker))
    assert "must be greater than share.heartbeat.interval.ms" in str(refused)
    check_group({"share.session.timeout.ms": "5001"}, broker)


# Commands.


def on_store(work: Callable[[SimStore], Awaitable[None]], unknown: float = 0) -> None:
    async def main(loop: SimLoop) -> None:
        etcd = SimEtcd(loop.seed)
        etcd.unknown_ratio = unknown
        await work(SimStore(etcd))

    for seed in range(20 if unknown else 1):
        run(main, seed)


async def make_topic(store: SimStore) -> None:
    born = PartitionRecord(replicas=(1,), leader=1, isr=(1,))
    record = TopicRecord(show_topic_id(ID), (born,), {"retention.ms": "1"})
    await topics.create_topic(store, TopicPlan("t", ID, record))


@pytest.mark.parametrize("unknown", [0.0, 0.4])
@run_with(on_store, fixtures=["unknown"])
async def test_topic_config_change_keeps_id_and_partitions(store: SimStore) -> None:
    await make_topic(store)
    before = load(*await store.range("/")).topics["t"]
    edit = altering(Scope.TOPIC, [set_("segment.ms", "9")])
    await config_changes.alter_topic(store, "t", edit)
    after = load(*await store.range("/")).topics["t"]
    assert after.configs == {"retention.ms": "1", "segment.ms": "9"}
    assert (after.id, after.partitions) == (before.id, before.partitions)


@run_with(on_store)
async def test_validation_and_unchanged_values_cost_no_revision(store: SimStore) -> None:
    await make_topic(store)
    revision, _ = await store.range("/")
    other = replacing(Scope.TOPIC, {"segment.ms": "9"})
    await config_changes.alter_topic(store, "t", other, validate_only=True)
    same = replacing(Scope.TOPIC, {"retention.ms": "1"})
    assert await config_changes.alter_topic(store, "t", same) == revision
    assert (await store.range("/"))[0] == revision


@run_with(on_store)
async def test_configs_of_an_unknown_topic_cannot_change(store: SimStore) -> None:
    with pytest.raises(Refused) as refused:
        await config_changes.alter_topic(store, "t", replacing(Scope.TOPIC, {}))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("unknown", [0.0, 0.4])
@run_with(on_store, fixtures=["unknown"])
async def test_broker_configs_are_stored_per_cluster_and_per_broker(store: SimStore) -> None:
    edit = altering(Scope.BROKER, [set_("message.max.bytes", "5")])
    await config_changes.alter_broker(store, None, edit)
    edit = altering(Scope.BROKER, [set_("message.max.bytes", "6")])
    await config_changes.alter_broker(store, 3, edit)
    image = load(*await store.range("/"))
    assert image.cluster_configs == {"message.max.bytes": "5"}
    assert image.broker_configs == {3: {"message.max.bytes": "6"}}
    # The last value gone takes the key with it.
    edit = altering(Scope.BROKER, [Alteration("message.max.bytes", Op.DELETE, None)])
    await config_changes.alter_broker(store, 3, edit)
    assert await store.get(store_keys.broker_configs_key(3)) is None


@run_with(on_store)
async def test_group_configs_are_bounded_and_stored(store: SimStore) -> None:
    broker = BrokerConfigs()
    edit = altering(Scope.GROUP, [set_("share.auto.offset.reset", "earliest")])
    await config_changes.alter_group(store, "g", edit, broker)
    image = load(*await store.range("/"))
    assert image.group_configs == {"g": {"share.auto.offset.reset": "earliest"}}
    edit = altering(Scope.GROUP, [set_("share.session.timeout.ms", "1")])
    with pytest.raises(Refused):
        await config_changes.alter_group(store, "g", edit, broker)
