"""A group and its clients, with every fault, and the invariants that must still hold.

Used by the property tests, which choose the actions, and by the planted bugs, which must be found.
The invariants, checked after every action:

- replayed records give the live state, also after compaction (in the driver);
- the group's number, generation or epoch, never goes back, and no generation begins twice;
- in a consumer group a partition has one owner, and no member reads what is not its own;
- in a stable generation no two members read the same partition;
- the offset is that of the last accepted commit; an old identity's commit is never accepted;
- no client waits longer than a rebalance may take;
- once faults stop, every partition is read by exactly one client.
"""

from random import Random
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import COMPLETING, STABLE
from penstock.state.groups.config import ConsumerGroupConfig, GroupConfig
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.consumer.reconciliation import flat
from penstock.state.groups.shard import GroupShard
from tests.unit.state.groups.clients import ClassicClient, Client, ConsumerClient
from tests.unit.state.groups.driver import Driver
from tests.unit.state.groups.test_offsets import end_txn, txn_commit

GROUP = "g"
WAIT_MS_MAX = ClassicClient.rebalance_ms + 1_000
CLIENTS_MAX = 5
SETTLE_STEPS = 70
"""Seconds within which all sessions and rebalances of the past are over."""
CLASSIC = ("eager", "cooperative")
CONSUMER = ("consumer", "slow")
MIXES = (CLASSIC, CONSUMER, CLASSIC + CONSUMER)
"""Clients of a world: of one protocol, of the other, or of both."""


class World:
    """One group with faults."""

    def __init__(self, shard_type: type[GroupShard] = GroupShard, *, replays: bool = True) -> None:
        settings = ConsumerGroupConfig(session_timeout_ms=20_000)
        config = GroupConfig(
            initial_rebalance_delay_ms=500, consumer_config_of=lambda group_id: settings
        )
        self.driver = Driver(config, replays=replays, shard_type=shard_type)
        self.driver.set_topics(t=3)
        self.clients: list[Client] = []
        self.dead: list[Client] = []
        self.names = 0
        self.number = 0
        self.began: dict[int, int] = {}
        self.waits: dict[Any, int] = {}
        self.offset = 0
        self.kept = -1
        self.order = 0
        self.kept_order = 0
        self.pending: dict[int, tuple[int, int]] = {}
        self.epochs: dict[int, int] = {}

    # Actions

    def add(self, kind: str, is_static: bool) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self.names += 1
            instance = f"i{self.names}" if is_static else None
            self.clients.append(self._made(kind, f"c{self.names}-", instance))

    def _made(self, kind: str, name: str, instance: str | None) -> Client:
        topics = ("t", "u") if self.names % 2 else ("t",)
        if kind in ("eager", "cooperative"):
            is_cooperative = kind == "cooperative"
            return ClassicClient(
                self.driver, name, GROUP, topics, instance, is_cooperative=is_cooperative
            )
        return ConsumerClient(self.driver, name, GROUP, topics, instance, is_slow=kind == "slow")

    def step(self, n: int) -> None:
        if self.clients:
            self.clients[n % len(self.clients)].step()

    def step_all(self) -> None:
        for client in self.clients:
            client.step()

    def kill(self, n: int) -> None:
        """Removes a client without a LeaveGroup."""
        if self.clients:
            client = self.clients.pop(n % len(self.clients))
            if isinstance(client, ClassicClient):
                client.disconnect()
            self.dead.append(client)

    def leave(self, n: int) -> None:
        if self.clients:
            client = self.clients.pop(n % len(self.clients))
            assert isinstance(client, ClassicClient | ConsumerClient)
            client.leave()
            self.dead.append(client)

    def restart(self, n: int, kind: str) -> None:
        """Restarts a client; a static one comes back, maybe with the other protocol."""
        if self.clients:
            place = n % len(self.clients)
            client = self.clients[place]
            if isinstance(client, ClassicClient):
                client.disconnect()
            elif isinstance(client, ConsumerClient) and client.instance is not None:
                client.leave(epoch=-2)
            self.dead.append(client)
            self.names += 1
            self.clients[place] = self._made(kind, f"c{self.names}-", client.instance)

    def disconnect(self, n: int) -> None:
        if self.clients:
            client = self.clients[n % len(self.clients)]
            if isinstance(client, ClassicClient):
                client.disconnect()

    def crash(self) -> None:
        for client in self.clients:
            if isinstance(client, ClassicClient):
                client.disconnect()
        self.driver.crash()
        self.waits.clear()
        group = self.driver.shard.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            # A member removed since the generation began is in it again: removal is persisted only
            # with the next generation, as in Kafka, and no other member owns its partitions before
            # that.
            for client in self.clients + self.dead:
                client.old = [known for known in client.old if known[1] != group.generation]

    def sleep(self, duration_ms: int) -> None:
        self.driver.sleep(duration_ms)

    def set_topics(self, partitions: int, has_other: bool) -> None:
        """Adds partitions; creates or deletes another topic."""
        count = max(partitions, self.driver.topics["t"][1])
        other = {"u": 2} if has_other else {}
        self.driver.set_topics(t=count, **other)
        if not has_other:
            for client in self.clients:
                client.owned = {place for place in client.owned if place[0] != "u"}

    def commit(self, n: int) -> None:
        if self.clients:
            client = self.clients[n % len(self.clients)]
            self.offset += 1
            if client.is_in and client.commit(self.offset) == ErrorCode.NONE:
                self.order += 1
                self.kept, self.kept_order = self.offset, self.order

    def commit_old(self, n: int) -> None:
        known = [(c, identity) for c in self.clients + self.dead for identity in c.old]
        if known:
            client, identity = known[n % len(known)]
            self.offset += 1
            code = client.commit(self.offset, identity)
            assert code != ErrorCode.NONE, f"{identity} is over, but its commit was taken"

    def begin_txn(self, producer: int) -> None:
        self.offset += 1
        epoch = self.epochs.setdefault(producer, 0)
        code = txn_commit(self.driver, self.offset, producer=producer, epoch=epoch)
        assert code == ErrorCode.NONE, code
        self.order += 1
        self.pending[producer] = (self.offset, self.order)

    def end_txn(self, producer: int, is_committed: bool) -> None:
        """Ends a transaction; the producer's epoch grows with each (KIP-890)."""
        epoch = self.epochs.get(producer, 0) + 1
        self.epochs[producer] = epoch
        end_txn(self.driver, producer=producer, epoch=epoch, commit=is_committed)
        if producer in self.pending:
            offset, order = self.pending.pop(producer)
            if is_committed and order > self.kept_order:
                self.kept, self.kept_order = offset, order
        late = txn_commit(self.driver, self.offset, producer=producer, epoch=epoch - 1)
        assert late == ErrorCode.INVALID_PRODUCER_EPOCH

    # Rules

    def check(self) -> None:
        group = self.driver.shard.groups.get(GROUP)
        self._check_number(group)
        if isinstance(group, ConsumerGroup):
            self._check_consumer(group)
        elif isinstance(group, ClassicGroup):
            self._check_classic(group)
        self._check_waits()
        found = self.driver.fetch(GROUP, is_stable=False)
        assert found == self.kept, f"position {found}, but {self.kept} was committed last"
        is_unstable = self.driver.fetch(GROUP, is_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert is_unstable == bool(self.pending)

    def _check_number(self, group: Any) -> None:
        number = 0
        if isinstance(group, ConsumerGroup):
            number = group.value.epoch
        elif isinstance(group, ClassicGroup):
            number = group.generation
        assert number >= self.number or group is None, f"{self.number} went back to {number}"
        self.number = number

    def _check_consumer(self, group: ConsumerGroup) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, current in group.currents.items():
            for slot in flat(current.assigned) | flat(current.revoking):
                assert slot not in owners, f"{slot} has two owners"
                owners[slot] = member_id
        ids = {name: found[0] for name, found in self.driver.topics.items()}
        for client in self.clients:
            if client.member in group.members:
                read = {(ids[topic], p) for topic, p in client.owned if topic in ids}
                own = {slot for slot, owner in owners.items() if owner == client.member}
                assert read <= own, f"{client.name} reads what is not its own"

    def _check_classic(self, group: ClassicGroup) -> None:
        if group.state not in (STABLE, COMPLETING):
            return
        began_ms = self.began.setdefault(group.generation, group.since_ms)
        assert began_ms == group.since_ms, f"generation {group.generation} began twice"
        seen: set[tuple[str, int]] = set()
        for client in self.clients:
            is_in = client.member in group.members and client.epoch == group.generation
            if is_in and group.state == STABLE:
                assert not seen & client.owned, f"{client.name} reads what another one reads"
                seen |= client.owned

    def _check_waits(self) -> None:
        parked = self.driver.shard.parked
        self.waits = {token: self.waits.get(token, self.driver.now_ms) for token in parked}
        for token, since_ms in self.waits.items():
            waited_ms = self.driver.now_ms - since_ms
            assert waited_ms <= WAIT_MS_MAX, f"{token} has waited for {waited_ms} ms"
        for client in self.clients:
            if isinstance(client, ClassicClient):
                for token in (client.join_token, client.sync_token):
                    assert token is None or token in parked or token in self.driver.replies

    def heal(self) -> None:
        """No more faults: all partitions are read, each by one; also after one more death."""
        self._settle()
        if len(self.clients) > 1:
            self.kill(0)
            self._settle()

    def _settle(self) -> None:
        for _ in range(SETTLE_STEPS):
            self.driver.sleep(1_000)
            self.step_all()
            self.check()
        read = sorted(place for client in self.clients for place in client.owned)
        topics = {topic for client in self.clients for topic in client.topics}
        wanted = [
            (name, partition)
            for name, (_, count) in sorted(self.driver.topics.items())
            if name in topics
            for partition in range(count)
        ]
        assert read == wanted, f"{read} is read, not {wanted}"


def act(world: World, random: Random, kinds: tuple[str, ...]) -> None:
    """Performs one random action; ordinary ones are more frequent than faults."""
    n = random.randrange(100)
    choice = random.randrange(100)
    if choice < 45:
        world.step(n)
    elif choice < 55:
        world.step_all()
    elif choice < 62:
        world.sleep(random.choice((1, 500, 3_000, 9_000, 25_000)))
    elif choice < 70:
        world.add(random.choice(kinds), random.random() < 0.3)
    elif choice < 73:
        world.kill(n)
    elif choice < 75:
        world.leave(n)
    elif choice < 78:
        world.restart(n, random.choice(kinds))
    elif choice < 80:
        world.disconnect(n)
    elif choice < 83:
        world.crash()
    elif choice < 86:
        world.set_topics(random.randrange(3, 8), random.random() < 0.5)
    elif choice < 92:
        world.commit(n)
    elif choice < 95:
        world.commit_old(n)
    elif choice < 98:
        world.begin_txn(n % 2)
    else:
        world.end_txn(n % 2, random.random() < 0.7)


def run(
    seed: int, steps: int, shard_type: type[GroupShard] = GroupShard, *, replays: bool = True
) -> World:
    """Runs random actions, then a faultless phase; raises AssertionError if a rule is broken."""
    random = Random(seed)
    world = World(shard_type, replays=replays)
    for _ in range(steps):
        act(world, random, MIXES[seed % len(MIXES)])
        world.check()
    world.heal()
    return world
