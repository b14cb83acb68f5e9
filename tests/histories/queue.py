"""A queue over HTTP: messages are put in, leased, settled or not, and drained in the end.

Workers acknowledge most of what they are given, release some, and keep some until its lease ends. A
lease is its worker's from the answer on until the lease's length after the question, whatever the
clocks of nodes say: so long it can be sure of it.
"""

import http.client
import json
import time
import urllib.parse
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.histories.logs import ends_of, read_all
from tests.histories.workload import FINISH_S, QUIET, SURE, Workload

TOPIC, GROUP = "jobs", "workers"
PARTITIONS = 2
SENDERS, WORKERS = 2, 4
LOCK_MS = 3_000
LIMIT = 8
ASK_S = 5.0
PAUSE_S = 0.1
ENDED = 409
CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": LOCK_MS,
    "share.delivery.count.limit": LIMIT,
    "share.retry.backoff.ms": 100,
    "share.retry.backoff.max.ms": 500,
}


class Unknown(Exception):
    """Unknown outcome: what was asked may have happened."""


class Queue(Workload):
    """Messages of one topic, shared by one group."""

    model = "queue"
    watched = TOPIC

    def prepare(self) -> None:
        self.create(TOPIC, PARTITIONS)
        deadline = time.monotonic() + FINISH_S
        while True:
            try:
                status, body = self.ask("PATCH", f"/groups/{GROUP}/configs", CONFIGS)
                assert status < 300, body
                return
            except Unknown:
                if time.monotonic() > deadline:
                    raise TimeoutError("the group cannot be configured") from None

    def begin(self) -> None:
        for n in range(SENDERS):
            self._run(f"s{n}", _Sends(self, f"s{n}").step, PAUSE_S / 2)
        for n in range(WORKERS):
            self._run(f"w{n}", _Works(self, f"w{n}").step, 0.01)

    def ask(self, method: str, path: str, body: Any = None, luck: float = 0.0) -> tuple[int, Any]:
        """One request to one node; raises Unknown without an answer that settles it."""
        nodes = list(self.cluster.nodes.values())
        where = urllib.parse.urlsplit(nodes[int(luck * len(nodes))].http)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=ASK_S)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"content-type": "application/json"})
            answer = connection.getresponse()
            found = json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unknown(type(error).__name__) from error
        finally:
            connection.close()
        if answer.status >= 500 or answer.status == 429:
            raise Unknown(found.get("code", answer.status))
        return answer.status, found

    def lease(self, process: str, luck: float, wait_ms: int) -> list[dict[str, Any]]:
        """Messages that a poll was given, each with the name of its lease."""
        query = {"group": GROUP, "max": 3, "wait_ms": wait_ms, "lock_ms": LOCK_MS}
        began_ns = self.journal.now_ns()
        path = f"/topics/{TOPIC}/poll?{urllib.parse.urlencode(query)}"
        try:
            status, found = self.ask("GET", path, luck=luck)
        except Unknown as unknown:
            self.journal.call(process, "poll").info(unknown)
            return []
        assert status == 200, found
        for message in found["messages"]:
            message["lease"] = f"{process}@{began_ns}.{message['partition']}.{message['offset']}"
            self.journal.done(
                began_ns,
                process,
                "lease",
                value=message["payload"],
                lease=message["lease"],
                count=message["delivery_count"],
                until=began_ns + int(LOCK_MS * SURE * 1_000_000),
                limit=LIMIT,
            )
        messages: list[dict[str, Any]] = found["messages"]
        return messages

    def settle(self, process: str, how: str, message: dict[str, Any], luck: float) -> None:
        value, lease = message["payload"], message["lease"]
        call = self.journal.call(process, how, value=value, lease=lease)
        body = {"receipt": message["receipt"]}
        try:
            status, found = self.ask("POST", f"/{how}", body, luck)
        except Unknown as unknown:
            call.info(unknown)
            return
        if status == ENDED:
            # By time, or by a settlement that may have been this one: nodes ask each other again.
            call.info(status)
            return
        assert status < 300, found
        call.ok()

    def look(self) -> None:
        """Everything is taken out, and every message was either settled or dead-lettered."""
        chance = self._chance()
        deadline = time.monotonic() + FINISH_S
        left: Any = "unknown"
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the queue is not drained: {left}")
            for message in self.lease("last", chance.random(), 100):
                self.settle("last", "ack", message, chance.random())
            try:
                status, found = self.ask("GET", f"/topics/{TOPIC}/queues/{GROUP}")
                left = found["unfinished"] if status == 200 else found
            except Unknown as unknown:
                left = str(unknown)
        self._find_dead()
        values = {line["value"] for line in self.journal.lines if line["f"] == "enqueue"}
        for value in sorted(values):
            self.journal.call("last", "gone", value=value).ok()

    def _find_dead(self) -> None:
        settings = {"bootstrap.servers": self.cluster.bootstrap, **QUIET}
        admin = AdminClient(settings)
        name = f"{TOPIC}.dlq"
        known = admin.list_topics(timeout=10).topics
        if name not in known:
            return
        rows = [TopicPartition(name, p) for p in sorted(known[name].partitions)]
        deadline = time.monotonic() + FINISH_S
        while (ends := ends_of(admin, rows, False)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no node returns where {name} ends")
        for row, end in zip(rows, ends, strict=True):
            start = TopicPartition(name, row.partition, 0)
            for message in read_all(settings, start, end, "read_committed"):
                value = (message.value() or b"").decode()
                # At some time until now.
                self.journal.done(0, "last", "dead", value=value)


class _Sends:
    def __init__(self, workload: Queue, name: str) -> None:
        self._workload, self._name = workload, name
        self._count = 0
        self._chance = workload._chance()

    def step(self) -> None:
        self._count += 1
        value = f"{self._name} {self._count}"
        call = self._workload.journal.call(self._name, "enqueue", value=value)
        path = f"/topics/{TOPIC}/messages"
        body = {"payload": value, "key": value}
        try:
            status, found = self._workload.ask("POST", path, body, self._chance.random())
        except Unknown as unknown:
            call.info(unknown)
            return
        if status < 300:
            call.ok()
        else:
            call.fail(found["code"])


class _Works:
    def __init__(self, workload: Queue, name: str) -> None:
        self._workload, self._name = workload, name
        self._chance = workload._chance()

    def step(self) -> None:
        chance, workload = self._chance, self._workload
        for message in workload.lease(self._name, chance.random(), 300):
            what = chance.random()
            if what < 0.05:
                continue  # Its lease ends.
            if what < 0.15:
                time.sleep(chance.random() * LOCK_MS / 1000 * 1.2)
            how = "nack" if what > 0.85 else "ack"
            workload.settle(self._name, how, message, chance.random())
