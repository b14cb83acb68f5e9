"""Changing many partitions at once: chunks, guards, unknown results."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from msgspec.structs import replace

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Delete, Expect, Put, UnknownResult
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller import partition_updates
from penstock.cluster.controller.partition_updates import Changed, ControllerLost, PartitionUpdate
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image, load
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord, TopicRecord
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with

TOPIC = TopicId(bytes([7]) * 16)


def on_store(work: Callable[[SimEtcd, SimStore], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        etcd = SimEtcd(loop.seed)
        await work(etcd, SimStore(etcd))

    run(main, seed)


async def create(store: SimStore, count: int, name: str = "t", topic_id: TopicId = TOPIC) -> None:
    record = TopicRecord(show_topic_id(topic_id), (initial_record((1, 2, 3)),) * count)
    await store.commit([], [Put(store_keys.topic_key(name), store_keys.encode(record))])


async def image_of(store: SimStore) -> Image:
    return load(*await store.range(store_keys.ALL))


def lead(record: PartitionRecord) -> PartitionRecord | None:
    """The update that all tests request: node 2 leads."""
    if record.leader == 2:
        return None
    return replace(
        record,
        leader=2,
        leader_epoch=record.leader_epoch + 1,
        partition_epoch=record.partition_epoch + 1,
    )


def updates_of(
    image: Image, decide: partition_updates.UpdateFunction = lead
) -> list[PartitionUpdate]:
    return [
        PartitionUpdate(topic, index, decide)
        for topic in image.topics.values()
        for index in range(len(topic.partitions))
    ]


@run_with(on_store)
async def test_many_updates_take_few_transactions(etcd: SimEtcd, store: SimStore) -> None:
    await create(store, 500)
    before = etcd.space.revision
    outcomes = await partition_updates.apply(store, updates_of(await image_of(store)))
    assert all(isinstance(outcome, Changed) for outcome in outcomes)
    assert etcd.space.revision - before <= 5
    image = await image_of(store)
    assert {record.leader for record in image.topics["t"].partitions} == {2}
    # A second time there are keys of their own to expect, and nothing to do.
    assert await partition_updates.apply(store, updates_of(image)) == [None] * 500


@run_with(on_store)
async def test_updates_of_many_topics_with_their_guards_fit_in_transactions(
    etcd: SimEtcd, store: SimStore
) -> None:
    for number in range(200):
        await create(store, 1, f"t{number}", TopicId(bytes([7, number]) * 8))
    outcomes = await partition_updates.apply(
        store, updates_of(await image_of(store)), [Expect("/controller-key", 0)]
    )
    assert all(isinstance(outcome, Changed) for outcome in outcomes)


@run_with(on_store)
async def test_concurrent_change_of_one_partition_does_not_block_the_rest(
    etcd: SimEtcd, store: SimStore
) -> None:
    await create(store, 50)
    stale = await image_of(store)
    shrunk = replace(initial_record((1, 2, 3)), isr=(1, 2), partition_epoch=1)
    await store.commit([], [Put(store_keys.partition_key(TOPIC, 7), store_keys.encode(shrunk))])
    outcomes = await partition_updates.apply(store, updates_of(stale))
    assert all(isinstance(outcome, Changed) for outcome in outcomes)
    record = (await image_of(store)).topics["t"].partitions[7]
    # Decided again from what was there, not written over it.
    assert (record.leader, record.isr, record.partition_epoch) == (2, (1, 2), 2)


@run_with(on_store)
async def test_deleted_topic_gets_no_partition_keys(etcd: SimEtcd, store: SimStore) -> None:
    await create(store, 5)
    stale = await image_of(store)
    await store.commit([], [Delete(store_keys.topic_key("t"))])
    outcomes = await partition_updates.apply(store, updates_of(stale))
    assert all(
        isinstance(outcome, Refused) and outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for outcome in outcomes
    )
    await create(store, 5, topic_id=TopicId(bytes([8]) * 16))
    outcomes = await partition_updates.apply(store, updates_of(stale))
    assert all(isinstance(outcome, Refused) for outcome in outcomes)
    assert (await store.range(store_keys.PARTITIONS))[1] == []


@run_with(on_store)
async def test_one_refused_update_does_not_affect_the_rest(etcd: SimEtcd, store: SimStore) -> None:
    await create(store, 2)
    image = await image_of(store)

    def refuse(record: PartitionRecord) -> PartitionRecord | None:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT)

    mixed = [
        PartitionUpdate(image.topics["t"], 0, refuse),
        PartitionUpdate(image.topics["t"], 1, lead),
    ]
    first, second = await partition_updates.apply(store, mixed)
    assert isinstance(first, Refused)
    assert isinstance(second, Changed)


@run_with(on_store)
async def test_updates_of_a_deposed_controller_are_refused(etcd: SimEtcd, store: SimStore) -> None:
    await create(store, 300)
    image = await image_of(store)
    controller = await store.commit([], [Put("/controller-key", b"1")])
    assert controller is not None
    await store.commit([], [Put("/controller-key", b"2")])
    with pytest.raises(ControllerLost):
        await partition_updates.apply(
            store, updates_of(image), [Expect("/controller-key", controller)]
        )
    assert (await image_of(store)).topics["t"].changed == {}


@pytest.mark.parametrize("seed", range(20))
@run_with(on_store, fixtures=["seed"])
async def test_unknown_results_are_looked_up_before_a_retry(etcd: SimEtcd, store: SimStore) -> None:
    await create(store, 150)
    etcd.unknown_ratio, etcd.timeout_s = 0.5, 0.5
    image = await image_of(store)
    while True:
        outcomes = await partition_updates.apply(store, updates_of(image))
        if not any(isinstance(outcome, Refused) for outcome in outcomes):
            break
        image = await image_of(store)
    await asyncio.sleep(20)  # Late ones find their guards broken.
    for record in (await image_of(store)).topics["t"].partitions:
        assert (record.leader, record.leader_epoch, record.partition_epoch) == (2, 1, 1)


class Forgetful(SimStore):
    """Does the first change, and does not say so."""

    has_forgotten = False

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        revision = await super().commit(expects, changes)
        if not self.has_forgotten:
            self.has_forgotten = True
            raise UnknownResult
        return revision


@run_with(on_store)
async def test_applied_update_with_an_unknown_result_counts_as_done(
    etcd: SimEtcd, store: SimStore
) -> None:
    await create(store, 3)
    image = await image_of(store)
    outcomes = await partition_updates.apply(Forgetful(etcd), updates_of(image))
    assert [isinstance(outcome, Changed) for outcome in outcomes] == [True] * 3
    after = (await image_of(store)).topics["t"].partitions
    assert [record.leader_epoch for record in after] == [1] * 3


@run_with(on_store)
async def test_store_outage_ends_as_request_timed_out(etcd: SimEtcd, store: SimStore) -> None:
    await create(store, 1)
    image = await image_of(store)
    etcd.down = True
    [outcome] = await partition_updates.apply(store, updates_of(image))
    assert isinstance(outcome, Refused)
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT


@run_with(on_store)
async def test_replica_leaves_the_isr_before_its_log_is_discarded(
    etcd: SimEtcd, store: SimStore
) -> None:
    await create(store, 1)
    for node in (1, 2, 3):
        broker = store_keys.encode(BrokerRecord(node, "h", node))
        await store.commit([], [Put(store_keys.broker_key(node), broker)])
    watcher = MetadataWatcher(store)
    await watcher.start()
    # The image is old: another change has been made since.
    now = replace(initial_record((1, 2, 3)), isr=(1, 2), elr=(3,), partition_epoch=1)
    await store.commit([], [Put(store_keys.partition_key(TOPIC, 0), store_keys.encode(now))])
    configs = BrokerConfigs({"min.insync.replicas": "3"})
    await partition_updates.leave(store, watcher, configs, "t", 0, 3)
    record = (await image_of(store)).topics["t"].partitions[0]
    assert (record.isr, record.elr, record.leader) == ((1, 2), (), 1)
    await partition_updates.leave(store, watcher, configs, "t", 0, 1)
    record = (await image_of(store)).topics["t"].partitions[0]
    assert (record.isr, record.elr, record.leader) == ((2,), (), 2)
    await partition_updates.leave(store, watcher, configs, "gone", 0, 1)
    etcd.down = True
    with pytest.raises(Refused):
        await partition_updates.leave(store, watcher, configs, "t", 0, 2)
