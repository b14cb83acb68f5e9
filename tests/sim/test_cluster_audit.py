"""Audit log over several nodes: every node reports, the leader writes, and a failure loses little.

Written entries stay; an entry is written once, unless the response to its write was lost.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.coordinator.audit_log import AUDIT
from penstock.log.log import Log
from penstock.security.audit_entries import DENIED, DONE, ENTRY, AuditedCall, AuditEntry
from penstock.wire.records import batches, decode
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from tests.run_with import run_with

OVERRIDES = {
    "audit.enable": "true",
    "encryption.kek.source": "env:KEK",
    "encryption.enable": "true",
}
PATIENCE_S = 120.0


def play(scene: Callable[[SimCluster], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, 0, (1, 2, 3), OVERRIDES)
        await cluster.start()
        await scene(cluster)
        await cluster.stop()
        cluster.close()

    run(main, seed=0, time_max=2000.0)


def tell(cluster: SimCluster, node_id: int, action: str, outcome: str = DONE) -> None:
    node = cluster.hosts[node_id].node
    assert node is not None
    node.audit.tell(AuditedCall("kafka", "User:ann", "10.0.0.1", action, outcome))


def leader_log(cluster: SimCluster) -> Log | None:
    for node in cluster.nodes():
        partition = node.partitions.get(AUDIT, 0)
        if partition is not None:
            return partition.log
    return None


def entries(log: Log) -> list[AuditEntry]:
    found: list[AuditEntry] = []
    offset = log.start_offset
    while offset < log.end_offset:
        span = log.locate(offset, 1 << 20, log.end_offset)
        assert span is not None
        view = memoryview(span.read())
        for position, header in batches(view):
            found += [ENTRY.decode(record.value or b"") for record in decode(view[position:])]
            offset = header.next_offset
    return found


async def until_written(cluster: SimCluster, actions: set[str]) -> list[AuditEntry]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            log = leader_log(cluster)
            found = entries(log) if log is not None else []
            if {entry.action for entry in found} >= actions:
                return found
            await asyncio.sleep(0.1)


@run_with(play)
async def test_entries_of_every_node_are_written_once_and_encrypted(
    cluster: SimCluster,
) -> None:
    for node_id in (1, 2, 3):
        for number in range(5):
            tell(cluster, node_id, f"act-{node_id}-{number}")
        for _ in range(20):
            tell(cluster, node_id, "denied", DENIED)
    wanted = {f"act-{node_id}-{number}" for node_id in (1, 2, 3) for number in range(5)}
    found = await until_written(cluster, {*wanted, "denied"})
    actions = [entry.action for entry in found]
    assert len(actions) == len(wanted) + 3, "a flood of denials is one entry of each node"
    assert sorted({entry.node for entry in found}) == [1, 2, 3]
    log = leader_log(cluster)
    assert log is not None
    assert log.segments.active.find_kind() is True


@run_with(play)
async def test_written_entries_survive_their_leader(cluster: SimCluster) -> None:
    tell(cluster, 1, "before")
    await until_written(cluster, {"before"})
    leader = next(n.config.node_id for n in cluster.nodes() if n.partitions.get(AUDIT, 0))
    cluster.hosts[leader].kill()
    other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    tell(cluster, other, "after")
    found = await until_written(cluster, {"before", "after"})
    assert [entry.action for entry in found].count("before") == 1
    await cluster.hosts[leader].start()


@run_with(play)
async def test_stopping_node_writes_its_pending_entries(cluster: SimCluster) -> None:
    tell(cluster, 2, "first")
    await until_written(cluster, {"first"})
    tell(cluster, 2, "last words")
    await cluster.hosts[2].stop()
    await until_written(cluster, {"last words"})
    await cluster.hosts[2].start()
