"""Reading records at given offsets, leaping over the rest."""

from penstock.client.metadata import TopicPartition
from penstock.client.reading import read_at
from penstock.queues.intervals import IntervalSet
from tests.unit.client.on_cluster import Desk, on_cluster

T0 = TopicPartition("t", 0)


def test_only_what_was_asked_for_and_is_there_is_read() -> None:
    async def scene(desk: Desk) -> None:
        await desk.admin.create_topic("t", 1, 1)
        await desk.produce("t", [b"%d" % number for number in range(50)])
        await desk.admin.delete_records({T0: 5})
        wanted = IntervalSet()
        for first, last in ((2, 6), (20, 20), (40, 41), (48, 90)):
            wanted.add(first, last)
        found = [message.offset async for message in read_at(desk.cluster, T0, wanted)]
        assert found == [5, 6, 20, 40, 41, 48, 49]
        beyond = IntervalSet()
        beyond.add(70, 80)
        assert [message async for message in read_at(desk.cluster, T0, beyond)] == []
        assert [message async for message in read_at(desk.cluster, T0, IntervalSet())] == []

    on_cluster(scene)
