"""Data for the console: orders, a lagging group, a queue, dead letters."""

import json
import time
import urllib.request
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.brokers import PenstockProcess

ORDERS, JOBS, WORKERS = "orders", "jobs", "workers"
DEADLINE_S = 20.0
HOSTILE = {
    "image": '<img src=x onerror="window.broken=1">',
    "script": "<script>window.broken=2</script>",
    "reversed": "pay \u202e001 DEK\u202c now",
}


class Scene:
    """Broker, called over HTTP as by any program."""

    def __init__(self, broker: PenstockProcess) -> None:
        self.broker = broker
        self.http = broker.http

    @property
    def console(self) -> str:
        return f"{self.http}/console"

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.http + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text else None

    def configure(self, configs: dict[str, str]) -> None:
        """Changes configs of the running node."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        node = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for done in admin.incremental_alter_configs([node]).values():
            done.result(30)

    def publish(self, topic: str, *messages: dict[str, Any]) -> None:
        self.ask("POST", f"/topics/{topic}/messages", {"messages": list(messages)})

    def orders(self, count: int = 30) -> None:
        """Publishes orders, and commits offsets of a group that has read half of them."""
        self.publish(
            ORDERS,
            *(
                {"payload": {"order": at, "total": at * 7.5, "city": "Graz"}, "key": f"c-{at % 9}"}
                for at in range(count)
            ),
        )
        topic = self.ask("GET", f"/topics/{ORDERS}")
        offsets = [
            {"topic": ORDERS, "partition": row["partition"], "offset": row["end_offset"] // 2}
            for row in topic["partitions"]
        ]
        self.ask("POST", "/offsets/commit", {"group": "billing", "offsets": offsets})

    def dead_letters(self, count: int = 6, topic: str = JOBS) -> None:
        """Publishes and rejects jobs; returns when their dead letters exist."""
        before = self.dead(topic)
        self.publish(topic, *({"payload": {"job": at}, "priority": at % 3} for at in range(count)))
        left = count
        while left:
            path = f"/topics/{topic}/poll?group={WORKERS}&max={left}&wait_ms=5000"
            for at, message in enumerate(self.ask("GET", path)["messages"]):
                error = "PaymentTimeout" if at % 3 else "BadAddress"
                self.ask(
                    "POST",
                    "/reject",
                    {"receipt": message["receipt"], "error_class": error, "error": "after 3 tries"},
                )
                left -= 1
        self.wait(lambda: self.dead(topic) == before + count, "the dead letters do not arrive")

    def reject(
        self, topic: str, *errors: tuple[str, str], traceback: str = "", key: str = "k"
    ) -> None:
        """Publishes a message for each error, and rejects it with that error."""
        before = self.dead(topic)
        self.publish(topic, *({"payload": {"at": at}, "key": key} for at in range(len(errors))))
        left = list(errors)
        while left:
            path = f"/topics/{topic}/poll?group={WORKERS}&max={len(left)}&wait_ms=5000"
            for message in self.ask("GET", path)["messages"]:
                error_class, error = left.pop()
                body = {"receipt": message["receipt"], "error_class": error_class, "error": error}
                self.ask("POST", "/reject", body | {"traceback": traceback})
        self.wait(lambda: self.dead(topic) == before + len(errors), "no dead letters")

    def dead(self, topic: str = JOBS) -> int:
        topics = self.ask("GET", "/dlq")["topics"]
        return sum(row["letters"] for row in topics if row["topic"] == f"{topic}.dlq")

    @staticmethod
    def wait(claim: Any, error: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not claim():
            if time.monotonic() >= deadline:
                raise TimeoutError(error)
            time.sleep(0.05)
