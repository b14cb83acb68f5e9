"""Writers and readers of two client families on one topic, and the check of their history.

`Load` starts them, reports acknowledgements, and in the end lets the readers read up to the end,
reads every partition once more from its beginning, and has the whole history checked.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.aio import AioReader, AioWriter, running_loop
from tests.chaos.history import Anomaly, Event, Found, Polled, Record, check, summarize
from tests.chaos.rdkafka import RdkafkaReader, RdkafkaWriter
from tests.chaos.writers import PATIENT, high_watermarks, read_partition

DRAIN_S = 90.0
PROGRESS_S = 90.0
BEFORE_S = 1.0


class Load:
    """Use as a context manager; what is still running at its end is ended."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int = 1,
        rate: int = 200,
        *,
        settings: Mapping[str, Any] | None = None,
        aio: bool = True,
        readers: bool = True,
        explain: Callable[[], str] = str,
    ) -> None:
        """`rate` is of each writer; `settings` are for librdkafka's clients; `explain` adds details
        when there is no progress.
        """
        self.history: list[Event] = []
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._rate, self._settings = rate, settings
        self._has_aio, self._has_readers = aio, readers
        self._explain = explain
        self._is_finished = False
        self._to_end = contextlib.ExitStack()
        self.writers: list[RdkafkaWriter | AioWriter] = []
        self.readers: list[RdkafkaReader | AioReader] = []

    def __enter__(self) -> "Load":
        at, topic, history, settings = self._bootstrap, self._topic, self.history, self._settings
        partitions, rate = self._partitions, self._rate
        names = ("1", "2") if self._has_readers else ()
        self.writers.append(
            RdkafkaWriter(at, topic, "rdkafka", partitions, rate, history, settings)
        )
        for name in names:
            group = f"{topic}-rdkafka"
            reader = RdkafkaReader(at, topic, f"rdkafka-{name}", group, history, settings)
            self.readers.append(reader)
        if self._has_aio:
            loop = self._to_end.enter_context(running_loop())
            self.writers.append(AioWriter(at, topic, "aiokafka", partitions, rate, history, loop))
            for name in names:
                group = f"{topic}-aiokafka"
                self.readers.append(AioReader(at, topic, f"aiokafka-{name}", group, history, loop))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._to_end:
            if not self._is_finished and kind is not None:
                # The failure is known; the clients' own troubles would hide it.
                with contextlib.suppress(AssertionError, TimeoutError):
                    self._end()

    def _end(self) -> None:
        self._is_finished = True
        for client in (*self.writers, *self.readers):
            client.finish()

    # -- while it runs ----------------------------------------------------------------------

    @property
    def acknowledged(self) -> int:
        return sum(writer.acknowledged for writer in self.writers)

    def wait_progress(self, seconds_worth: float = 0.5) -> None:
        """Until every writer got so many more acknowledgements as that time should bring."""
        more = max(1, int(self._rate * seconds_worth))
        goals = [(writer, writer.acknowledged + more) for writer in self.writers]
        deadline = time.monotonic() + PROGRESS_S
        while waiting := [w for w, goal in goals if w.acknowledged < goal]:
            if time.monotonic() > deadline:
                words = [(w.name, w.acknowledged, w.errors[:3]) for w in waiting]
                raise TimeoutError(f"no writes go through: {words}\n{self._explain()}")
            time.sleep(0.02)

    def gap_since(self, moment: float, partition: int = 0) -> float:
        """The longest time without an acknowledgement of librdkafka's writer, from just before."""
        times = [at for at, p in list(self.writers[0].acks) if p == partition]
        times = [at for at in times if at >= moment - BEFORE_S]
        return max((b - a for a, b in itertools.pairwise(times)), default=0.0)

    # -- in the end -------------------------------------------------------------------------

    def judge(self) -> list[Anomaly]:
        """Ends writing, lets readers come to the end, and checks everything they all saw."""
        self._is_finished = True
        for writer in self.writers:
            writer.finish()
        ends = high_watermarks(self._bootstrap, self._topic, self._partitions)
        self._drain(ends)
        for reader in self.readers:
            reader.finish()
        self._ask_positions()
        logs = {
            partition: {
                offset: Record.decode(value)
                for offset, value in read_partition(
                    self._bootstrap, self._topic, partition, end
                ).items()
            }
            for partition, end in enumerate(ends)
        }
        print(f"history: {summarize(self.history)}")
        return check(self.history, logs)

    @property
    def errors(self) -> list[str]:
        clients = (*self.writers, *self.readers)
        return [f"{client.name}: {error}" for client in clients for error in client.errors]

    def _ask_positions(self) -> None:
        """Reads the groups' committed offsets, as a later member would."""
        rows = [TopicPartition(self._topic, p) for p in range(self._partitions)]
        for group in dict.fromkeys(reader.group for reader in self.readers):
            consumer = Consumer(
                {"bootstrap.servers": self._bootstrap, "group.id": group, **PATIENT}
            )
            for row in consumer.committed(rows, timeout=30):
                self.history.append(Found(group, row.partition, max(row.offset, 0)))
            consumer.close()

    def _drain(self, ends: list[int]) -> None:
        """Until every group has been given the last record of every partition, or no longer."""
        groups = {reader.name: reader.group for reader in self.readers}
        wanted = {
            (group, partition, end - 1)
            for group in groups.values()
            for partition, end in enumerate(ends)
            if end
        }
        deadline, looked = time.monotonic() + DRAIN_S, 0
        while wanted and time.monotonic() < deadline:
            events = self.history[looked:]
            looked += len(events)
            for event in events:
                if isinstance(event, Polled):
                    wanted.discard((groups[event.consumer], event.partition, event.offset))
            time.sleep(0.02)
