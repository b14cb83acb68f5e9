"""Messages of a queue, published and settled at every node in turn while nodes are killed.

A message that was published with an answer is settled in the end: acknowledged, or rejected and
found among the dead letters. One whose acknowledgement was answered is not delivered again. A
request without an answer may have been carried out or not, so its messages may come again. When all
is settled every node reports an empty queue.
"""

import itertools
import threading
import time
from collections import Counter
from typing import Any, Final

from tests.clusters import Nodes
from tests.mixed.gateway import Failed, ask, ask_patiently

TOPIC: Final = "jobs"
GROUP: Final = "workers"
DEAD_LETTERS: Final = f"{TOPIC}.dlq"
EVERY_S: Final = 0.02
AT_ONCE: Final = 10
REJECTED: Final = 10
"""One message of so many is rejected, one is given back at its first delivery."""
CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.retry.backoff.ms": "0",
    "share.record.lock.duration.ms": "15000",
    "share.delivery.count.limit": "10",
}


class Queueing:
    """A publisher and a consumer, each with a thread; both go from node to node."""

    def __init__(self, cluster: Nodes) -> None:
        self._cluster = cluster
        self.published: set[int] = set()
        self.acknowledged: set[int] = set()
        """With an answer that said so."""
        self.rejected: set[int] = set()
        self.in_doubt: set[int] = set()
        """Without an answer: settled, or delivered again."""
        self.settled_at: Counter[int] = Counter()
        """Messages by the node that settled them."""
        self.received_at: Counter[int] = Counter()
        self.errors: list[str] = []
        self._is_publishing = self._is_receiving = True
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True)
            for work in (self._publish, self._receive)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self, timeout_s: float = 180.0) -> None:
        """Publishes no more, and returns when all that was published is settled."""
        self._is_publishing = False
        self._threads[0].join()
        deadline = time.monotonic() + timeout_s
        path = f"/topics/{TOPIC}/queues/{GROUP}"
        while True:
            shown = [
                ask_patiently(node.http, "GET", path)["unfinished"]
                for node in self._cluster.nodes.values()
            ]
            left = self.published - self.acknowledged - self.rejected - self.in_doubt
            assert not self.errors, self.errors[:5]
            if not left and not any(shown):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"not settled: {sorted(left)[:10]}, {shown} by node")
            time.sleep(0.5)
        self._is_receiving = False
        self._threads[1].join()
        assert not self.errors, self.errors[:5]

    def _publish(self) -> None:
        nodes = itertools.cycle(self._cluster.nodes.values())
        for number in itertools.count():
            if not self._is_publishing:
                return
            body = {"payload": number, "key": str(number % 7)}
            try:
                ask(next(nodes).http, "POST", f"/topics/{TOPIC}/messages", body)
                self.published.add(number)
            except Failed:
                pass  # It may be there or not; if it is, it is settled like the others.
            time.sleep(EVERY_S)

    def _receive(self) -> None:
        order = list(self._cluster.nodes.values())
        path = f"/topics/{TOPIC}/poll?group={GROUP}&max={AT_ONCE}&wait_ms=500"
        for turn in itertools.count():
            if not self._is_receiving:
                return
            # Each pair of nodes has its turn: one gives, the other one settles.
            giver = order[turn % 3]
            settler = order[turn // 3 % 3]
            try:
                messages = ask(giver.http, "GET", path)["messages"]
            except Failed:
                time.sleep(EVERY_S)
                continue
            self.received_at[giver.node_id] += len(messages)
            try:
                self._settle(settler.http, settler.node_id, messages)
            except Failed:
                time.sleep(EVERY_S)  # Their leases end, and they come again.

    def _settle(self, address: str, node_id: int, messages: list[dict[str, Any]]) -> None:
        done, given_back, rejected = [], [], []
        for one in messages:
            number = one["payload"]
            if number in self.acknowledged or number in self.rejected:
                self.errors.append(f"{number} came again after it was settled")
            if number % REJECTED == 0:
                rejected.append(one)
            elif number % REJECTED == 1 and one["delivery_count"] == 1:
                given_back.append(one)
            else:
                done.append(one)
        for verb, some, noted in (
            ("nack", given_back, None),
            ("ack", done, self.acknowledged),
            ("reject", rejected, self.rejected),
        ):
            if some:
                body = {"receipts": [one["receipt"] for one in some]}
                try:
                    answer = ask(address, "POST", f"/{verb}", body)
                except Failed:
                    self.in_doubt.update(one["payload"] for one in some)
                    raise
                refused = {error["index"] for error in answer.get("errors", ())}
                counted = [one["payload"] for at, one in enumerate(some) if at not in refused]
                self.settled_at[node_id] += len(counted)
                if noted is not None:
                    noted.update(counted)

    def check_dead_letters(self) -> int:
        """Every rejected message is there once, whichever node is asked."""
        for node in self._cluster.nodes.values():
            deadline = time.monotonic() + 60
            while True:
                path = f"/dlq/{DEAD_LETTERS}?limit=1000"
                dead_letters = ask_patiently(node.http, "GET", path)["letters"]
                counts = Counter(one["message"]["payload"] for one in dead_letters)
                assert counts.keys() <= self.rejected | self.in_doubt, "they were not rejected"
                if counts.keys() >= self.rejected:
                    break
                missing = sorted(self.rejected - counts.keys())
                assert time.monotonic() < deadline, f"not among the dead letters: {missing[:10]}"
                time.sleep(0.5)
            assert max(counts.values(), default=1) == 1, "a dead letter is there twice"
        return len(self.rejected)
