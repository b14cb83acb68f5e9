"""Runs a cluster of two versions under load, and checks that nothing is lost.

    python -m tests.mixed --old 0031c18

Node 1 is of the older commit, nodes 2 and 3 of this tree, on one etcd. Idempotent writers, a
transactional one and a queue over HTTP are at work while each node is killed once and started
again; after each kill every node answers for schemas, offsets, queues and dead letters. In the end
the older node is replaced by one of this tree on the same directory, and all is checked again.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from tests.brokers import QUICK
from tests.chaos.cluster_view import View, ask, wait_whole
from tests.chaos.writers import (
    PATIENT,
    Writer,
    check_all_present,
    create_topic,
    high_watermarks,
    read_partition,
)
from tests.clusters import NodeProcess, Nodes
from tests.mixed import queueing, transactions
from tests.mixed.gateway import ask_patiently
from tests.mixed.queueing import Queueing
from tests.mixed.transactions import Transactions
from tests.mixed.trees import NEW, Tree, checkout
from tests.waiting import eventually

BEFORE_THE_MOVE: Final = "0031c18"
"""The last commit before modules, classes and functions were renamed."""
OLD_NODE: Final = 1
PARTITIONS: Final = 2
RATE: Final = 200
SETS: Final = {
    **QUICK,
    "audit.enable": "true",
    "group.share.min.record.lock.duration.ms": 1_000,
}
SCHEMA: Final = '{"type": "record", "name": "r%d", "fields": []}'


class Run:
    """One cluster and its load."""

    def __init__(self, folder: Path, old: Tree, seconds: float) -> None:
        self._seconds = seconds
        self._trees = {1: old, 2: NEW, 3: NEW}
        prefixes = {node: tree.prefix() for node, tree in self._trees.items()}
        self.cluster = Nodes(folder / "cluster", sets=SETS, prefixes=prefixes)
        self._writers: list[Writer] = []
        self._schemas = 0

    def check(self) -> None:
        """All of it."""
        cluster = self.cluster
        self._check_versions()
        self._let_old_control()
        topics = [f"log-{node}" for node in cluster.nodes]
        for first, topic in enumerate(topics):
            replicas = [(first + step) % 3 + 1 for step in range(3)]  # Each node leads one.
            create_topic(
                cluster.bootstrap, topic, PARTITIONS, replicas=replicas, min_insync_replicas="2"
            )
        for topic in (queueing.TOPIC, transactions.TOPIC):
            create_topic(cluster.bootstrap, topic, 3, 3, min_insync_replicas="2")
        for topic in topics:
            wait_whole(cluster, topic)
            self._writers.append(Writer(cluster.bootstrap, topic, topic, PARTITIONS, RATE))
        paid, queue = Transactions(cluster.bootstrap), Queueing(cluster)
        path = f"/groups/{queueing.GROUP}/configs"
        ask_patiently(cluster.nodes[1].http, "PATCH", path, queueing.CONFIGS)
        paid.start()
        queue.start()
        say("under load")
        self._visit_all()
        for node in cluster.nodes.values():
            self._kill(node, topics)
        self._replace(topics)
        for writer in self._writers:
            writer.finish()
        paid.finish()
        queue.finish()
        for writer in self._writers:
            count = check_all_present(cluster.bootstrap, writer.name, [writer])
            assert not writer.errors, writer.errors[:5]
            say(f"{writer.name}: {count} acknowledged records are there once and in order")
        say(f"{paid.check()} transactions count, {len(paid.aborted)} do not")
        say(f"{len(queue.acknowledged)} messages of a queue are settled; {self._spread(queue)}")
        say(f"{queue.check_dead_letters()} are dead letters, each once")
        self._check_audit()

    def stop(self) -> None:
        """Ends the load and the nodes, whatever state they are in."""
        for writer in self._writers:
            writer.stop()
        self.cluster.stop()

    def _check_versions(self) -> None:
        for node_id, tree in self._trees.items():
            node = self.cluster.nodes[node_id]
            assert tree.is_run_by(node.log()), f"node {node_id} is not of {tree.source}"

    def _let_old_control(self) -> None:
        """The older node makes the topics, and is the first whose place is taken."""
        others = [node for node in self.cluster.nodes.values() if node.node_id != OLD_NODE]
        for node in others:
            node.stop()
        old = self.cluster.nodes[OLD_NODE].address
        create_topic(old, "first", 1)
        for node in others:
            node.start()
        self._check_versions()
        eventually(lambda: len(self.cluster.describe()["nodes"]) == 3, "all nodes are there")
        view = ask(old, "first")
        assert view is not None
        assert view.controller == OLD_NODE, view

    def _spread(self, queue: Queueing) -> str:
        for counts in (queue.received_at, queue.settled_at):
            assert set(counts) == set(self.cluster.nodes), f"a node had no part in it: {counts}"
        return f"given by {dict(queue.received_at)}, settled by {dict(queue.settled_at)}"

    def _kill(self, node: NodeProcess, topics: list[str]) -> None:
        time.sleep(self._seconds)
        name = self._trees[node.node_id].name
        node.kill()
        say(f"killed node {node.node_id} ({name})")
        rest = [other for other in self.cluster.nodes.values() if other is not node]
        self._visit(rest)
        time.sleep(self._seconds)
        node.start()
        self._settle(topics)
        say(f"node {node.node_id} is back and in sync everywhere")
        self._visit_all()

    def _replace(self, topics: list[str]) -> None:
        """Starts the older node's directory with this tree's code."""
        node = self.cluster.nodes[OLD_NODE]
        node.stop()
        self._trees[OLD_NODE] = NEW
        node._prefix = NEW.prefix()
        node.start()
        self._check_versions()
        self._settle(topics)
        say(f"node {OLD_NODE} is of this version now, on the directory of the older one")
        self._visit_all()
        time.sleep(self._seconds)

    def _settle(self, topics: list[str]) -> None:
        names = (*topics, queueing.TOPIC, transactions.TOPIC)
        views: list[View] = [wait_whole(self.cluster, name) for name in names]
        leaders = [view.leaders for view in views]
        say(f"controller {views[0].controller}, leaders {leaders}")

    # -- what nodes ask each other ------------------------------------------------------------

    def _visit_all(self) -> None:
        self._visit(list(self.cluster.nodes.values()))

    def _visit(self, nodes: list[NodeProcess]) -> None:
        """Each node answers for data led by others: schemas, offsets, queues, dead letters."""
        for node in nodes:
            self._schemas += 1
            subject = f"subject-{self._schemas}"
            body = {"schema": SCHEMA % self._schemas}
            path = f"/subjects/{subject}/versions"
            made = ask_patiently(node.http, "POST", path, body)["id"]
            for other in nodes:
                shown = ask_patiently(other.http, "GET", f"/schemas/ids/{made}")
                assert f"r{self._schemas}" in shown["schema"], shown
                found = ask_patiently(other.http, "GET", f"/subjects/{subject}/versions/latest")
                assert found["id"] == made
            self._commit(node, nodes)
            path = f"/topics/{queueing.TOPIC}/queues/{queueing.GROUP}"
            assert ask_patiently(node.http, "GET", path)
            ask_patiently(node.http, "GET", "/queues")
            ask_patiently(node.http, "GET", "/dlq")

    def _commit(self, node: NodeProcess, nodes: list[NodeProcess]) -> None:
        """An offset committed at one node is returned by the others."""
        group = f"readers-{self._schemas % 5}"
        wanted = TopicPartition("log-1", 0, self._schemas)
        self._with_consumer(
            node, group, lambda one: one.commit(offsets=[wanted], asynchronous=False)
        )
        for other in nodes:
            told = self._with_consumer(other, group, lambda one: one.committed([wanted], 30))
            assert told[0].offset == self._schemas, (other.node_id, told)

    def _with_consumer(self, node: NodeProcess, group: str, work: Callable[[Consumer], Any]) -> Any:
        settings = {"bootstrap.servers": node.address, "group.id": group}

        def attempt() -> Any:
            consumer = Consumer({**settings, **PATIENT, "enable.auto.commit": False})
            try:
                return work(consumer)
            except Exception as error:
                problems.append(error)
                return None
            finally:
                consumer.close()

        problems: list[Exception] = []
        return eventually(attempt, f"{group} at node {node.node_id}", explain=lambda: problems[-1:])

    def _check_audit(self) -> None:
        """Entries of every node are in the one log of them."""
        (end,) = high_watermarks(self.cluster.bootstrap, "__audit", 1)
        entries = [
            json.loads(value)
            for value in read_partition(self.cluster.bootstrap, "__audit", 0, end).values()
        ]
        nodes = {entry["node"] for entry in entries if entry["action"] == "Register"}
        assert nodes == set(self.cluster.nodes), f"registered by {nodes}"
        say(f"{len(entries)} entries of the audit log, of all nodes")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mixed", description=__doc__)
    parser.add_argument("--old", default=BEFORE_THE_MOVE, help="the commit that node 1 is of")
    parser.add_argument("--seconds", type=float, default=5.0, help="of load around each kill")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-mixed-") as name:
        folder = Path(name)
        with checkout(given.old, folder / "old") as old:
            run = Run(folder, old, given.seconds)
            try:
                run.check()
            except BaseException:
                print(run.cluster.all_logs(), file=sys.stderr)
                raise
            finally:
                run.stop()
    say("the two versions are one cluster")
    return 0


if __name__ == "__main__":
    sys.exit(main())
