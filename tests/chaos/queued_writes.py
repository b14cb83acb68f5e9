"""Produce requests that lie in the sockets of a node that does not read them.

Some are sent over connections that the node had accepted, some over connections that only its
kernel has. Each request asks for one of the three kinds of acknowledgement. What the node answers
when it reads them is collected.
"""

import itertools
import socket
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import Record as BatchRecord
from penstock.wire.records import encode
from tests.chaos import raw
from tests.chaos.history import Acknowledged, Event, Record, Refused, Sent

VERSION = 9
ALL, ONE, NONE = -1, 1, 0
PRODUCER = "queued"
ANSWER_S = 30.0
TIMEOUT_MS = 10_000


class Asked(NamedTuple):
    record: Record
    acks: int


class QueuedWrites:
    """Connections to one node, and what was written into them."""

    def __init__(self, address: str, topic: str, history: list[Event]) -> None:
        self._address = address
        self._topic, self._history = topic, history
        self._numbers = itertools.count()
        self._asked: dict[socket.socket, list[Asked]] = {}
        self.answers: list[tuple[int, ErrorCode]] = []
        """The kind of acknowledgement that was asked for, and what was answered."""

    @property
    def count(self) -> int:
        return sum(map(len, self._asked.values()))

    def connect(self) -> None:
        """One connection for each kind of acknowledgement; a paused node's kernel takes them."""
        for _ in (ALL, ONE, NONE):
            self._asked[raw.connect(self._address, ANSWER_S)] = []

    def write(self, count: int) -> None:
        """Sends `count` requests into every connection."""
        for number, (connection, asked) in enumerate(self._asked.items()):
            acks = (ALL, ONE, NONE)[number % 3]
            for _ in range(count):
                record = Record(PRODUCER, next(self._numbers))
                self._history.append(Sent(0, record))
                asked.append(Asked(record, acks))
                raw.send(connection, self._request(record, acks), VERSION, record.number)

    def _request(self, record: Record, acks: int) -> ProduceRequest:
        batch = memoryview(encode([BatchRecord(0, -1, None, record.encode(), ())]))
        data = TopicProduceData(
            name=self._topic, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        return ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[data])

    def collect(self) -> None:
        """Reads and records every answer. An unacknowledged record must never have been written,
        whatever the answer: the node was no longer leader when it first read the request.
        """
        for connection, asked in self._asked.items():
            with connection:
                for record, acks in asked:
                    code, offset = self._answer(connection) if acks else (None, -1)
                    if code is ErrorCode.NONE:
                        self._history.append(Acknowledged(0, record, offset))
                    else:
                        self._history.append(Refused(0, record))
                    if code is not None:
                        self.answers.append((acks, code))
        self._asked.clear()

    def _answer(self, connection: socket.socket) -> tuple[ErrorCode | None, int]:
        """The code and the offset; None without an answer."""
        try:
            response = raw.receive(connection, ProduceResponse, VERSION)
        except (ConnectionError, TimeoutError):
            return None, -1
        row = response.responses[0].partition_responses[0]
        return ErrorCode(row.error_code), row.base_offset
