"""Recovery of the metadata on one node that is not running: its report, and the cluster's plan.

Owns: reading the report from a data directory, keeping the reports of all nodes in the store during
the recovery, and executing the plan. The plan itself is `cluster.metadata.metadata_rebuild`.

Invariants: nothing is changed without `apply`; a node does not start while reports exist; reports
are deleted last, so an interrupted recovery is repeated from the same reports. The data directory
is locked and only read. No node may be registered.
"""

import zlib
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from penstock.base.errors import Corrupt
from penstock.base.ids import show_topic_id
from penstock.base.ports import COMMIT_CHANGES_MAX, Delete, Disk, Put, Store, StoreEntry
from penstock.cluster.metadata import known_metadata, metadata_rebuild, store_keys
from penstock.cluster.metadata.image import load
from penstock.cluster.metadata.metadata_rebuild import LogReport, NodeReport, RecoveryPlan
from penstock.log.recovery import survey
from penstock.node import data_directory
from penstock.node.config import NodeConfig
from penstock.node.join import open_store
from penstock.node.metadata_check import compare, directories, where
from penstock.node.ports import Ports

CHUNK_BYTES = 256 * 1024
"""Size of a report's pieces; etcd accepts 1.5 MiB in a request."""
REQUEST_BYTES = 512 * 1024
REPORT_BYTES_MAX = 256 * 1024 * 1024


class CannotRecover(Exception):
    """The recovery is impossible; the message says why and what to do. Nothing was changed."""


@dataclass(slots=True)
class RecoveryOutcome:
    """Findings of a recovery on one node, and the actions taken or planned."""

    where: str
    node_id: int
    older: list[str]
    """Parts of the store that are older than what this node has seen; empty if the store is
    current."""
    reported: list[int] = field(default_factory=list)
    """Nodes that have reported, this one included."""
    plan: RecoveryPlan | None = None
    """None: there is nothing to recover."""


async def recover(
    ports: Ports, config: NodeConfig, given_up: Collection[int], *, apply: bool
) -> RecoveryOutcome:
    """Plans one node's part of a recovery; with `apply`, does it."""
    meta = data_directory.read(
        ports.disk, config.data_dir, config.node_id, is_shared=ports.is_store_shared
    )
    if meta is None:
        raise CannotRecover(f"{config.data_dir} is not a node's data directory; nothing was done")
    lock = ports.lock(config.data_dir)
    try:
        async with _opened(ports, config) as store:
            report = await ports.workers.run(read_report, ports.disk, config, meta.cluster_id)
            return await _recover(ports, config, store, report, set(given_up), apply=apply)
    finally:
        lock.release()


@asynccontextmanager
async def _opened(ports: Ports, config: NodeConfig) -> AsyncIterator[Store]:
    store = await open_store(ports, config, lambda text: None)
    try:
        yield store
    finally:
        await store.close()


async def _recover(
    ports: Ports,
    config: NodeConfig,
    store: Store,
    report: NodeReport,
    given_up: set[int],
    *,
    apply: bool,
) -> RecoveryOutcome:
    revision, entries = await store.range(store_keys.ALL)
    image = load(revision, entries)
    if image.cluster_id and image.cluster_id != report.cluster_id:
        raise CannotRecover(
            f"{config.data_dir} is of cluster {report.cluster_id}, and {where(config)} of "
            f"{image.cluster_id}; nothing was done"
        )
    if image.brokers and ports.is_store_shared:
        raise CannotRecover(
            f"node {', '.join(map(str, image.brokers))} is registered: stop all nodes first. One "
            "that was killed counts as gone some seconds later; nothing was done"
        )
    older, strays = await ports.workers.run(
        compare, ports.disk, f"{config.data_dir}/logs", report.known, image, config.node_id
    )
    remembered = set(report.known.topics()) if report.known is not None else set()
    older += [f"it does not know topic {name}" for name in strays if name in remembered]
    if strays and not image.topics and not image.deleted and not older:
        older.append(f"it has no topics, and there are logs of {', '.join(strays[:5])} here")
    outcome = RecoveryOutcome(where(config), config.node_id, older)
    reports = read_reports(entries)
    if not older and not reports:
        return outcome
    reports[report.node_id] = report
    outcome.reported = sorted(reports)
    kept = [entry for entry in entries if not entry.key.startswith(_UNDER_WAY)]
    outcome.plan = metadata_rebuild.plan(
        kept, reports.values(), given_up, ports.random.random_bytes(8).hex()
    )
    if apply:
        await _put_report(store, report, entries)
        if not outcome.plan.missing:
            await _carry_out(store, outcome.plan)
    return outcome


_UNDER_WAY = (store_keys.RECOVERY, store_keys.BROKERS, store_keys.CONTROLLER)
"""Keys that a recovery leaves alone."""


def read_report(disk: Disk, config: NodeConfig, cluster_id: str) -> NodeReport:
    """Reads the report of this directory for a recovery. Blocks."""
    logs = []
    for name, topic_id, path in directories(disk, f"{config.data_dir}/logs"):
        for index in disk.listdir(path):
            found = survey(disk, f"{path}/{index}") if index.isdecimal() else None
            if found is not None:
                logs.append(
                    LogReport(
                        show_topic_id(topic_id),
                        int(index),
                        name,
                        found.latest_epoch,
                        found.last_epoch,
                        found.end_offset,
                    )
                )
    return NodeReport(
        config.node_id, cluster_id, known_metadata.read(disk, config.data_dir), tuple(logs)
    )


# -- reports in the store -------------------------------------------------------------------------


def _prefix(node_id: int) -> str:
    return f"{store_keys.RECOVERY}{node_id}/"


async def _put_report(store: Store, report: NodeReport, entries: Sequence[StoreEntry]) -> None:
    """Stores a report in pieces; the first one, written last, holds their number."""
    body = zlib.compress(msgspec.json.encode(report))
    pieces = [body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)]
    prefix = _prefix(report.node_id)
    old = [Delete(entry.key) for entry in entries if entry.key.startswith(prefix)]
    await _commit(store, old)
    await _commit(
        store, [Put(f"{prefix}{number + 1:04d}", piece) for number, piece in enumerate(pieces)]
    )
    await _commit(store, [Put(f"{prefix}0000", str(len(pieces)).encode())])


def read_reports(entries: Sequence[StoreEntry]) -> dict[int, NodeReport]:
    """Returns complete reports only; a node repeats an incomplete one."""
    by_node: dict[int, dict[str, bytes]] = {}
    for entry in entries:
        if entry.key.startswith(store_keys.RECOVERY):
            node, _, number = entry.key.removeprefix(store_keys.RECOVERY).partition("/")
            by_node.setdefault(int(node), {})[number] = entry.value
    found = {}
    for node_id, pieces in by_node.items():
        count = int(pieces.pop("0000", b"-1"))
        if count != len(pieces):
            continue
        unpacker = zlib.decompressobj()
        body = unpacker.decompress(b"".join(pieces[n] for n in sorted(pieces)), REPORT_BYTES_MAX)
        if unpacker.unconsumed_tail:
            raise Corrupt(f"the report of node {node_id} is larger than {REPORT_BYTES_MAX} bytes")
        found[node_id] = msgspec.json.decode(body, type=NodeReport)
    return found


async def _carry_out(store: Store, plan: RecoveryPlan) -> None:
    """Executes the plan: the store becomes usable after all other changes, then reports are
    deleted."""
    last = [change for change in plan.changes if change.key == store_keys.RECOVERED]
    await _commit(store, [change for change in plan.changes if change.key != store_keys.RECOVERED])
    await _commit(store, last)
    _, entries = await store.range(store_keys.RECOVERY)
    await _commit(store, [Delete(entry.key) for entry in entries])


async def _commit(store: Store, changes: Sequence[Put | Delete]) -> None:
    """Commits in as many transactions as needed; each may be repeated."""
    chunk: list[Put | Delete] = []
    size = 0
    for change in changes:
        more = len(change.value) if isinstance(change, Put) else 0
        if chunk and (size + more > REQUEST_BYTES or len(chunk) == COMMIT_CHANGES_MAX):
            await store.commit((), chunk)
            chunk, size = [], 0
        chunk.append(change)
        size += more
    if chunk:
        await store.commit((), chunk)
