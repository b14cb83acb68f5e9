"""Simulated restore of the metadata store from a backup, while nodes run or are down.

A run creates topics, records and producers; takes a backup; writes more of all of them, while nodes
are stopped, killed or lose power; and restores the store (perhaps with a bumped revision, an option
of etcd). No node may continue with it, nor start. Then the metadata is recovered on every node in
some order, sometimes interrupted; one directory may be lost. After that every node serves, and new
producers write. Violations:

- stale-store: a node serves with the restored store;
- producer-id: a producer id is assigned twice;
- topic: a topic has changed (id, partitions, configs), or a deleted one exists again;
- log: a log of an existing topic is missing;
- lost-write, duplicate, inconsistent-offsets: as in `checkers.records`.
"""

import contextlib
import random
from collections.abc import Sequence

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import show_topic_id
from penstock.base.ports import Delete, Expect, Put, Store
from penstock.base.store_model import StoreModel
from penstock.client.admin.admin import TOPIC, Admin
from penstock.client.metadata import TopicPartition
from penstock.cluster.metadata import store_keys
from penstock.node.metadata_recovery import recover
from penstock.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from simulation.client import NO_REPLY
from simulation.coordinator_run import SETTLE_S, Options, Run
from simulation.host import DATA, SimHost
from simulation.store import SimStore
from simulation.workloads.appender import read_all
from simulation.world import World

SEEN_S = 4.0
"""Wait after the last change until every node has saved its metadata."""
WHOLE_S = 15.0
"""Wait until every running replica is in sync, and every node knows it."""
NOTICED_S = 60.0
CONFIG = "retention.ms"


class Interrupted(Exception):
    """The recovery of the metadata is interrupted."""


class InterruptedStore(SimStore):
    """Connection that fails at its n-th change."""

    left: int = 10**9

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        self.left -= 1
        if self.left < 0:
            raise Interrupted
        return await super().commit(expects, changes)


class RestorationRun(Run):
    """Restore run of one seed."""

    def __init__(self, world: World, options: Options) -> None:
        super().__init__(world, options)
        self.rng: random.Random = world.rng("restoration")
        self.topics: dict[str, tuple[str, str]] = {}
        """Id and retention of each topic."""
        self.deleted: dict[str, None] = {}
        self.places: list[TopicPartition] = []
        self.producer_ids: set[int] = set()
        self._numbers = 0

    async def live(self) -> None:
        world, etcd = self.world, self.world.cluster.etcd
        await world.cluster.start()
        self.judge = world.client("judge")
        await self.judge.cluster.bootstrap()
        await self._write_more("early")
        backup = etcd.backup()
        await self._write_more("late")
        await world.sleep(SEEN_S)
        await self._restart_some()
        await world.sleep(WHOLE_S)
        can_be_bumped = self._has_moved_on(backup)
        if self.rng.random() < 0.5:
            await self._end(self.rng.choice(self._hosts()))  # Misses later changes.
            await world.sleep(WHOLE_S)
        await self._write_more("latest")
        await world.sleep(self.rng.choice((0.0, SEEN_S)))
        is_running = self.rng.random() < 0.4
        if not is_running:
            for host in self._hosts():
                await self._end(host)
        # A bumped store that lacks only new topics is indistinguishable from a newer one.
        bump = self.rng.choice((0, 1_000)) if can_be_bumped else 0
        world.fault(f"store restored, {'running' if is_running else 'down'}, bump {bump}")
        etcd.restore(backup, bump=bump)
        await self._check_refusal()
        logs = {host.name: self._logs(host) for host in self._hosts()}
        await self._recover(logs)
        for host in self._hosts():
            if not await host.start():
                world.violate("stuck", f"{host.name} does not start: {host.failed}")
        await self._check_topics()
        await self._write_more("after")
        for host in self._hosts():
            for path in logs.get(host.name, ()):
                if not host.disk.exists(path):
                    world.violate("log", f"{host.name}: {path} is missing")
        self.records.check(await read_all(self.judge, self.places, committed=False))
        if world.violation is not None:
            raise world.violation

    def _has_moved_on(self, backup: StoreModel) -> bool:
        """True if a topic of the backup has changed since."""
        space = self.world.cluster.etcd.space
        present = {entry.key: entry.revision for entry in space.range(store_keys.PARTITIONS)}
        return any(
            present.get(entry.key, 0) > entry.revision
            for entry in backup.range(store_keys.PARTITIONS)
        )

    def _hosts(self) -> list[SimHost]:
        return list(self.world.cluster.hosts.values())

    # -- workload ---------------------------------------------------------------------------

    async def _write_more(self, phase: str) -> None:
        """Writes more topics, records and producers; sometimes deletes a topic."""
        admin = Admin(self.judge.cluster)
        for number in range(self.rng.randint(1, 2)):
            name = f"{phase}-{number}"
            partitions = self.rng.randint(1, 3)
            retention = str(self.rng.randint(10**9, 10**10))
            while True:
                factor = sum(host.is_up for host in self._hosts())
                try:
                    await admin.create_topic(
                        name,
                        partitions=partitions,
                        replication_factor=factor,
                        configs={CONFIG: retention},
                    )
                    break
                except Refused as refused:
                    if refused.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                        break
                except NO_REPLY:
                    pass
                await self.world.sleep(0.5)
            await self.judge.cluster.refresh((name,))
            info = await self.judge.topic(name)
            self.topics[name] = show_topic_id(info.topic_id), retention
            self.places += [TopicPartition(name, index) for index in range(partitions)]
        await self._take_producer_ids()
        self._numbers += 1
        client = f"appender-{self._numbers}"
        self.options.chaos_s = 6.0
        self._append(client, list(self.places), self.options.records)
        appender = self.appenders[-1]
        await self.world.until(f"{client} done", SETTLE_S, lambda: appender.is_done)
        if phase == "late" and self.rng.random() < 0.5:
            await self._delete(admin)

    async def _delete(self, admin: Admin) -> None:
        name = self.rng.choice([one for one in self.topics if one.startswith("early")])
        with contextlib.suppress(Refused):
            await admin.delete_topic(name)
        del self.topics[name]
        self.deleted[name] = None
        self.places = [where for where in self.places if where.topic != name]
        checker = self.records
        for key in [key for key in checker.acknowledged if key[0][0] == name]:
            del checker.acknowledged[key]

    async def _take_producer_ids(self) -> None:
        for node_id in self.judge.cluster.metadata.brokers:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            try:
                connection = await self.judge.cluster.connection(node_id)
                reply = await connection.call(request, InitProducerIdResponse)
            except (*NO_REPLY, PeerError):
                continue
            if reply.error_code:
                continue
            if reply.producer_id in self.producer_ids:
                self.world.violate("producer-id", f"{reply.producer_id} is assigned twice")
            self.producer_ids.add(reply.producer_id)

    async def _restart_some(self) -> None:
        """Restarts some nodes, so that leaders change and blocks of ids are allocated."""
        for host in self.rng.sample(self._hosts(), self.rng.randint(0, len(self._hosts()))):
            await self._end(host)
            await self.world.sleep(self.rng.uniform(0.0, 8.0))
            if not await host.start():
                self.world.violate("stuck", f"{host.name} does not start: {host.failed}")
            await self.world.sleep(1.0)

    async def _end(self, host: SimHost) -> None:
        kind = self.rng.choice(("stop", "kill", "power"))
        if kind == "stop":
            await host.stop()
        elif kind == "kill":
            host.kill()
        else:
            host.cut_power()

    # -- restored store ---------------------------------------------------------------------

    async def _check_refusal(self) -> None:
        """Checks that no node continues or starts."""
        for host in self._hosts():
            await self.world.until(
                f"{host.name} notices", NOTICED_S, lambda host=host: not host.is_up
            )
            if await host.start():
                self.world.violate("stale-store", f"{host.name} serves with an older store")
                await host.stop()
            else:
                self.world.reached("refused")
        if self.world.violation is not None:
            raise self.world.violation

    async def _recover(self, logs: dict[str, list[str]]) -> None:
        """Recovers the metadata on every node; repeats interrupted recoveries."""
        hosts = self._hosts()
        lost: tuple[int, ...] = ()
        if len(hosts) > 2 and self.rng.random() < 0.3:
            lost = (hosts.pop(self.rng.randrange(len(hosts))).node_id,)
            self.world.fault("directory lost")
        session_s = 20.0
        await self.world.sleep(session_s)  # Registrations of the backup end.
        self.rng.shuffle(hosts)
        for host in hosts:
            for attempt in range(3):
                store = InterruptedStore(self.world.cluster.etcd)
                if attempt < 2 and self.rng.random() < 0.3:
                    store.left = self.rng.randint(0, 5)
                try:
                    await self._recover_one(host, store, lost)
                    break
                except Interrupted:
                    self.world.fault("recovery cut short")
        for node_id in lost:
            self._lose(self.world.cluster.hosts[node_id])
            logs.pop(f"node-{node_id}")

    async def _recover_one(self, host: SimHost, store: Store, lost: tuple[int, ...]) -> None:
        async def open_store(path: str) -> Store:
            return store

        host.is_locked = False
        host.power_on()
        ports = host.ports(open_store)
        outcome = await recover(ports, host.config, lost, apply=True)
        host.is_locked = False
        is_done = outcome.plan is not None and not outcome.plan.missing
        self.world.reached("recovered" if is_done else "reported")

    def _lose(self, host: SimHost) -> None:
        """Replaces the host's disk by an empty one."""
        host.replace_disk(self.options.make_disk(self.rng.getrandbits(32)))

    def _logs(self, host: SimHost) -> list[str]:
        """Directories of partitions of existing topics."""
        root = f"{DATA}/logs"
        living = {text for text, _ in self.topics.values()}
        return [
            f"{root}/{name}/{index}"
            for name in host.disk.listdir(root)
            if name.rpartition(".")[2] in living
            for index in host.disk.listdir(f"{root}/{name}")
        ]

    async def _check_topics(self) -> None:
        admin = Admin(self.judge.cluster)

        async def is_whole() -> bool:
            with contextlib.suppress(*NO_REPLY, Refused):
                infos = {info.name: info for info in await admin.list_topics()}
                return all(
                    partition.leader_id >= 0
                    for name in self.topics
                    if name in infos
                    for partition in infos[name].partitions.values()
                )
            return False

        await self.world.until("every partition has a leader", SETTLE_S, is_whole)
        infos = {info.name: info for info in await admin.list_topics()}
        for name, (text, retention) in self.topics.items():
            if name not in infos or show_topic_id(infos[name].topic_id) != text:
                self.world.violate("topic", f"{name} was not recovered")
                continue
            configs = await admin.describe_configs(TOPIC, name, [CONFIG])
            if configs[0].value != retention:
                self.world.violate("topic", f"{name} has {CONFIG} {configs[0].value}")
        for name in self.deleted:
            if name in infos:
                self.world.violate("topic", f"{name} was deleted and exists again")
