"""`cluster.replication.isr`: proposals to the store, and what counts while they are under way."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from penstock.base.ports import Delete, Put
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord
from penstock.cluster.replication.isr import IsrMaintenance
from penstock.cluster.replication.leader_state import LeaderState
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.replicating import append, led, replicate, synced

LAG = {"replica.lag.time.max.ms": "1000"}


class Leader:
    """A node with a replicated topic, and what keeps its ISR."""

    def __init__(self, node: Node) -> None:
        self.node = node
        ctx = node.ctx
        self.isr = IsrMaintenance(1, node.store, ctx.watcher, ctx.partitions, node.configs)
        node.background(self.isr.run())

    @property
    def leader_state(self) -> LeaderState:
        leader_state = led(self.node).leader_state
        assert leader_state is not None
        return leader_state

    def fetched(self, node_id: int, offset: int, index: int = 0) -> None:
        now_s = asyncio.get_running_loop().time()
        led(self.node, index=index).replica_fetched(node_id, 100 + node_id, offset, now_s)

    async def stored(self, index: int = 0) -> PartitionRecord:
        topic = self.node.ctx.image.topics["t"]
        entry = await self.node.store.get(store_keys.partition_key(topic.id, index))
        assert entry is not None
        return store_keys.decode(PartitionRecord, entry.value)

    async def keep_fetching(self, *nodes: int, seconds: float) -> None:
        for _ in range(int(seconds / 0.1)):
            for node_id in nodes:
                self.fetched(node_id, led(self.node).log.end_offset)
            await asyncio.sleep(0.1)


def on_leader(test: Callable[[Leader], Awaitable[None]], seed: int = 0) -> None:
    async def main(node: Node) -> None:
        await replicate(node, min_insync_replicas="2")
        await test(Leader(node))

    on_node(main, seed, LAG)


@run_with(on_leader)
async def test_lagging_follower_leaves_the_isr_and_one_that_keeps_up_stays(leader: Leader) -> None:
    append(leader.node)
    await leader.keep_fetching(2, seconds=0.8)
    assert (await leader.stored()).isr == (1, 2, 3)
    await leader.keep_fetching(2, seconds=1)
    record = await leader.stored()
    assert record.isr == (1, 2)
    assert (record.leader_epoch, record.partition_epoch) == (3, 11)
    assert led(leader.node).high_watermark == 1, "what waited for it is committed now"
    assert (leader.isr.shrinks, leader.isr.expands) == (1, 0)


@run_with(on_leader)
async def test_idle_partition_keeps_its_followers_without_fetches(leader: Leader) -> None:
    append(leader.node)
    await synced(leader.node)
    leader.fetched(2, 1)
    leader.fetched(3, 1)
    await asyncio.sleep(10)
    assert (await leader.stored()).isr == (1, 2, 3)
    append(leader.node)
    await asyncio.sleep(0.5)
    assert (await leader.stored()).isr == (1, 2, 3), "they have their time from now on"
    await asyncio.sleep(1.5)
    assert (await leader.stored()).isr == (1,)


@run_with(on_leader)
async def test_caught_up_follower_joins_at_once(leader: Leader) -> None:
    await replicate(leader.node, isr=(1, 2), partition_epoch=11)
    append(leader.node)
    await synced(leader.node)
    leader.fetched(2, 1)
    leader.fetched(3, 1)
    assert 3 not in leader.leader_state.maximal_isr
    await asyncio.sleep(0.02)
    assert (await leader.stored()).isr == (1, 2, 3)
    assert leader.leader_state.maximal_isr == (1, 2, 3)
    assert leader.isr.expands == 1


@run_with(on_leader)
async def test_follower_does_not_join_under_a_changed_registration(
    leader: Leader,
) -> None:
    node = leader.node
    await replicate(node, isr=(1, 2), partition_epoch=11)
    node.etcd.watch_delay_s = (0.3, 0.3)
    reborn = BrokerRecord(3, "host3", 9092, epoch=999)
    await node.store.commit([], [Put(store_keys.broker_key(3), store_keys.encode(reborn))])
    leader.fetched(3, 0)  # Its past life's last words: our image still shows that one.
    assert node.ctx.image.brokers[3].epoch == 103
    await asyncio.sleep(1)
    assert (await leader.stored()).isr == (1, 2)
    assert leader.leader_state.maximal_isr == (1, 2)


@run_with(on_leader)
async def test_follower_refused_once_joins_later(leader: Leader) -> None:
    node = leader.node
    await replicate(node, isr=(1, 2), partition_epoch=11)
    revision = await node.store.commit([], [Delete(store_keys.broker_key(3))])
    assert revision is not None
    await node.ctx.reached(revision)
    leader.fetched(3, 0)
    await asyncio.sleep(0.5)
    assert (await leader.stored()).isr == (1, 2)
    await node.put(store_keys.broker_key(3), BrokerRecord(3, "host3", 9092, epoch=103))
    await asyncio.sleep(0.5)
    assert (await leader.stored()).isr == (1, 2, 3), "although it has not fetched again"


@run_with(on_leader)
async def test_follower_leaving_below_the_minimum_stays_eligible(leader: Leader) -> None:
    append(leader.node)
    await asyncio.sleep(2)
    record = await leader.stored()
    assert (record.isr, record.elr) == ((1,), (2, 3))
    assert leader.leader_state.is_under_min
    leader.fetched(2, 1)
    await asyncio.sleep(0.1)
    record = await leader.stored()
    assert (record.isr, record.elr) == ((1, 2), ())


@run_with(on_leader)
async def test_pending_proposal_counts_and_the_record_is_advanced(
    leader: Leader,
) -> None:
    node = leader.node
    await replicate(node, isr=(1, 2), partition_epoch=11)
    append(node)
    await synced(node)
    leader.fetched(2, 1)
    node.etcd.down = True
    leader.fetched(3, 1)
    await asyncio.sleep(6)
    append(node)
    await synced(node)
    leader.fetched(2, 2)
    await asyncio.sleep(1)
    assert 3 in leader.leader_state.maximal_isr
    assert led(node).high_watermark == 1, "it may be in sync by now"
    node.etcd.down = False
    await asyncio.sleep(12)
    record = await leader.stored()
    assert record.isr == (1, 2)
    assert record.partition_epoch > 11, "moved on, so that nothing late can come true"
    assert led(node).high_watermark == 2


def test_unknown_or_late_results_end_in_agreement() -> None:
    for seed in range(15):

        async def check(leader: Leader) -> None:
            node = leader.node
            node.etcd.unknown_ratio = 0.5
            node.etcd.delay_s = (0.0, 0.2)
            for round_number in range(20):
                append(node)
                behind = 2 + round_number % 2
                keeping_up = 5 - behind
                await leader.keep_fetching(keeping_up, seconds=1.5)
                maximal, stored = leader.leader_state.maximal_isr, await leader.stored()
                if stored.partition_epoch == leader.leader_state.record.partition_epoch:
                    assert set(stored.isr) <= set(maximal)
            node.etcd.unknown_ratio = 0.0
            await leader.keep_fetching(2, 3, seconds=15)
            assert (await leader.stored()).isr == (1, 2, 3)
            assert led(node).high_watermark == led(node).log.end_offset

        on_leader(check, seed)


@run_with(on_node, configs=LAG)
async def test_many_partitions_take_few_commits(node: Node) -> None:
    await replicate(node, count=70, isr=(1, 2), min_insync_replicas="2")
    leader = Leader(node)
    before = node.etcd.space.revision
    for index in range(70):
        leader.fetched(3, 0, index)
    await asyncio.sleep(1)
    for index in range(70):
        assert (await leader.stored(index)).isr == (1, 2, 3)
    assert node.etcd.space.revision - before == 2


@run_with(on_node, configs=LAG)
async def test_one_failed_guard_does_not_delay_the_rest(node: Node) -> None:
    await replicate(node, count=3, isr=(1, 2), min_insync_replicas="2")
    leader = Leader(node)
    node.etcd.watch_delay_s = (0.2, 0.2)
    topic = node.ctx.image.topics["t"]
    changed = replace(topic.partitions[1], partition_epoch=50)
    key = store_keys.partition_key(topic.id, 1)
    await node.store.commit([], [Put(key, store_keys.encode(changed))])
    for index in range(3):
        leader.fetched(3, 0, index)
    await asyncio.sleep(0.1)
    assert (await leader.stored(0)).isr == (1, 2, 3)
    assert (await leader.stored(2)).isr == (1, 2, 3)
    await asyncio.sleep(1)
    record = await leader.stored(1)
    assert (record.isr, record.partition_epoch) == ((1, 2, 3), 51)


@run_with(on_leader)
async def test_leader_whose_log_fails_leaves_and_another_leads(leader: Leader) -> None:
    partition = led(leader.node)
    leader.node.ctx.partitions.read_failed(partition, OSError("unreadable"))
    await asyncio.sleep(0.5)
    record = await leader.stored()
    assert 1 not in record.isr
    assert record.leader in (2, 3)
    assert record.leader_epoch == 4
    assert leader.node.ctx.partitions.get("t", 0) is None


@run_with(on_leader)
async def test_last_in_sync_replica_stays_though_its_log_failed(leader: Leader) -> None:
    await replicate(leader.node, isr=(1,), partition_epoch=11)
    leader.node.ctx.partitions.read_failed(led(leader.node), OSError("unreadable"))
    await asyncio.sleep(2)
    assert (await leader.stored()).isr == (1,)


async def fail_eligible_follower(leader: Leader, isr: tuple[int, ...]) -> None:
    record = PartitionRecord((1, 2, 3), 2, isr, 4, 11, elr=(1, 3))
    partition = led(leader.node)
    topic = leader.node.ctx.image.topics["t"]
    await leader.node.put(store_keys.partition_key(topic.id, 0), record)
    await asyncio.sleep(0.1)
    leader.node.ctx.partitions.read_failed(partition, OSError("unreadable"))
    await asyncio.sleep(2)


@run_with(on_leader)
async def test_eligible_follower_whose_log_fails_leaves_the_elr(leader: Leader) -> None:
    """As long as it is eligible it cannot copy its log anew, and the ISR could never grow."""
    await fail_eligible_follower(leader, isr=(2,))
    record = await leader.stored()
    assert (record.leader, record.isr, record.elr) == (2, (2,), (3,))


@run_with(on_leader)
async def test_eligible_follower_whose_log_fails_stays_while_the_isr_is_down(
    leader: Leader,
) -> None:
    await fail_eligible_follower(leader, isr=(4,))
    assert 1 in (await leader.stored()).elr


@run_with(on_leader)
async def test_lowered_min_insync_replicas_clears_the_elr(leader: Leader) -> None:
    node = leader.node
    record = PartitionRecord((1, 2, 3), 1, (1,), 3, 11, elr=(2,))
    topic = node.ctx.image.topics["t"]
    await node.put(store_keys.partition_key(topic.id, 0), record)
    append(node)
    await asyncio.sleep(2)
    assert led(node).high_watermark == 0
    await node.put(
        store_keys.CLUSTER_CONFIGS, store_keys.ConfigsRecord({"min.insync.replicas": "1"})
    )
    stored = store_keys.TopicRecord(
        store_keys.decode(store_keys.TopicRecord, (await _entry(node, "t"))).id, topic.initial, {}
    )
    await node.put(store_keys.topic_key("t"), stored)
    await asyncio.sleep(2)
    assert (await leader.stored()).elr == ()
    assert led(node).high_watermark == 1


async def _entry(node: Node, name: str) -> bytes:
    entry = await node.store.get(store_keys.topic_key(name))
    assert entry is not None
    return entry.value
