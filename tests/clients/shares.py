"""Share consumers of confluent-kafka, as the tests use them."""

import time
from collections.abc import Mapping
from types import TracebackType

from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

WAIT_SECONDS = 30.0


def configure_group(bootstrap: str, group: str, configs: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


class ShareMember:
    """A member that records its deliveries, and settles them on demand."""

    def __init__(self, bootstrap: str, group: str, topic: str, **more: object) -> None:
        self.messages: list[Message] = []
        self._unanswered: list[Message] = []
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                **more,
            }
        )
        self.consumer.subscribe([topic])

    def __enter__(self) -> "ShareMember":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.consumer.close()

    def poll(self, seconds: float = 0.2) -> list[Message]:
        """Messages available now. Every earlier delivery must have been settled."""
        found = list(self.consumer.poll(seconds))
        for message in found:
            assert message.error() is None, message.error()
        self.messages += found
        self._unanswered += found
        return found

    def next(self) -> list[Message]:
        """The next records, as soon as there are any."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := self.poll()):
            if time.monotonic() >= deadline:
                raise TimeoutError("no records")
        return found

    def read(self, count: int) -> list[Message]:
        """Receives `count` records, each accepted."""
        start = len(self.messages)
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.messages) - start < count:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"only {len(self.messages) - start} of {count}")
            for message in self.poll():
                self.answer(message)
        return self.messages[start:]

    def answer(self, message: Message, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        self.consumer.acknowledge(message, kind)
        self._unanswered.remove(message)

    def commit(self) -> None:
        """Returns when what was answered is kept."""
        for row in (self.consumer.commit_sync() or {}).values():
            assert row is None, row
