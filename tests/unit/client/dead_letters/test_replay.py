"""Reading again for a share group, and copies; crashes are in tests/sim."""

from penstock.client.admin.admin import Admin
from penstock.client.admin.queues import finish, inspect, list_queues
from penstock.client.dead_letters.replay import (
    Copier,
    CopyPlan,
    finished_offsets,
    replay_share_group,
    unfinished_copy,
)
from penstock.client.list_offsets import OffsetSpan
from penstock.client.metadata import TopicPartition
from penstock.client.share.consumer import ShareConsumer
from tests.run_with import run_with
from tests.unit.client.on_cluster import Desk, on_cluster

T0 = TopicPartition("t", 0)


async def prepare(desk: Desk, count: int) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.produce("t", [b"%d" % number for number in range(count)])
    for group in ("g", "other"):
        await Admin(desk.cluster).alter_configs(32, group, {"share.auto.offset.reset": "earliest"})
        async with ShareConsumer(desk.cluster, group, ["t"]) as consumer:
            await consumer.receive(1, 10_000)


@run_with(on_cluster)
async def test_replay_offers_records_of_one_group_only(desk: Desk) -> None:
    await prepare(desk, 10)
    assert sorted(await list_queues(desk.cluster, ["t"])) == [("t", "g"), ("t", "other")]
    for group in ("g", "other"):
        await finish(desk.cluster, group, {T0: [(0, 6)]})
    span = OffsetSpan(4, 9)
    assert len(await finished_offsets(desk.cluster, "g", T0, span)) == 3
    assert await replay_share_group(desk.cluster, "g", {T0: span}) == {T0: 3}
    assert not await finished_offsets(desk.cluster, "g", T0, span)
    reports = [(await inspect(desk.cluster, name, [T0]))[T0] for name in ("g", "other")]
    assert [report.unfinished for report in reports] == [6, 3]


@run_with(on_cluster)
async def test_copy_keeps_all_fields_and_adds_no_group(desk: Desk) -> None:
    await desk.admin.create_topic("t", 2, 1)
    await desk.admin.create_topic("same", 2, 1)
    await desk.admin.create_topic("more", 5, 1)
    for partition in (0, 1):
        values = [b"%d-%d" % (partition, number) for number in range(5)]
        await desk.produce(
            "t", values, partition=partition, headers=[("h", b"v")], key=b"k%d" % partition
        )
    spans = {T0: OffsetSpan(1, 4), TopicPartition("t", 1): OffsetSpan(0, 5)}
    told: list[int] = []
    copier = Copier(desk.cluster, CopyPlan("c", "same", spans), told.append, records_max=2)
    report = await copier.run()
    assert (report.copied, sum(told), report.is_resumed) == (8, 8, False)
    source = [m for m in await desk.read("t") if m.partition or 1 <= m.offset < 4]
    shown = [(m.partition, m.key, m.value, m.timestamp, m.headers) for m in source]
    copied = await desk.read("same")
    assert sorted((m.partition, m.key, m.value, m.timestamp, m.headers) for m in copied) == (
        sorted(shown)
    )
    assert await unfinished_copy(desk.cluster, "c") == {}
    await Copier(desk.cluster, CopyPlan("d", "more", spans)).run()
    by_key = {message.key: message.partition for message in await desk.read("more")}
    assert len(by_key) == 2
