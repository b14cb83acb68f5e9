"""A log against a list: whatever is done to it, it holds what a list would hold.

The model is the list of records, the first offset, what must survive a power cut, and where each
leader epoch began.
"""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.log.cleanup.retention import purge
from penstock.log.config import LogConfig
from penstock.log.log import Log
from tests.unit.log.building import (
    NOW_MS,
    append,
    batch,
    disk_of,
    flush,
    make_disk,
    open_log,
    read_from,
)

PRODUCER = 7
CONFIGS = [
    LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1),
    LogConfig(segment_bytes=2000, index_interval_bytes=0, retention_ms=-1),
    LogConfig(segment_bytes=400, index_interval_bytes=4096, retention_ms=-1, page_cache=True),
]


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.config = CONFIGS[0]
        self.log: Log = open_log(make_disk(), self.config)
        self.values: list[bytes] = []  # By offset, from 0 on; what is before start is not read.
        self.start = 0
        self.start_max = 0  # A power cut may take back a start offset that was not flushed.
        self.durable = 0
        self.epoch = 1
        self.epochs: list[int] = []  # Of each record.
        self.sequence = 0
        self.serial = 0

    # Writing.

    @rule(count=st.integers(1, 4), size=st.integers(0, 120), idempotent=st.booleans())
    def append(self, count: int, size: int, idempotent: bool) -> None:
        values = []
        for _ in range(count):
            self.serial += 1
            values.append(b"%d-" % self.serial + b"x" * size)
        producer = (-1, -1, -1)
        if idempotent:
            producer = (PRODUCER, self.epoch, self.sequence)
            self.sequence += count
        appended = append(self.log, batch(values, producer=producer), epoch=self.epoch)
        assert appended[:3] == (len(self.values), len(self.values) + count - 1, False)
        if idempotent:
            again = append(self.log, batch(values, producer=producer), epoch=self.epoch)
            assert again[:2] == appended[:2]
            assert again.duplicate
        self.values += values
        self.epochs += [self.epoch] * count

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.sequence = 0

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        flush(self.log)
        self.durable = max(self.durable, self.log.synced_offset)

    # Removing.

    @precondition(lambda self: self.values)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, len(self.values)))
        self.log.truncate_to(offset, NOW_MS)
        # The batch that holds the offset goes as a whole.
        assert offset - 4 < self.log.end_offset <= offset or offset == 0
        del self.values[self.log.end_offset :]
        del self.epochs[self.log.end_offset :]
        self.start = self.log.start_offset
        assert self.start <= offset
        self.durable = min(self.durable, self.log.end_offset)
        self.epoch += 1
        self.sequence = 0

    @precondition(lambda self: self.values)
    @rule(data=st.data())
    def delete_before(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, max(self.start, self.durable)))
        self.start_max = max(self.start_max, self.start)
        self.log.delete_before(self.start)

    @rule()
    def retain(self) -> None:
        removals = self.log.retain(NOW_MS, self.log.end_offset)
        later = purge(self.log.disk, removals, 2**62)
        # Segments below a start offset that no flush has persisted yet have to wait for it.
        assert not any(removal.is_due(2**62) for removal in later)

    # Stopping and starting.

    @rule(config=st.sampled_from(CONFIGS))
    def restart_cleanly(self, config: LogConfig) -> None:
        clean = self.log.close()
        assert clean is not None
        self.config = config
        self.log = open_log(disk_of(self.log), config, clean)
        self.durable = len(self.values)
        assert self.log.start_offset == self.start

    @rule(config=st.sampled_from(CONFIGS))
    def restart_after_a_kill(self, config: LogConfig) -> None:
        self.config = config
        self.log = open_log(disk_of(self.log), config)
        self.durable = len(self.values)
        self.start = self.log.start_offset

    @rule(seed=st.integers(0, 2**16), config=st.sampled_from(CONFIGS))
    def restart_after_a_power_cut(self, seed: int, config: LogConfig) -> None:
        self.config = config
        self.log = open_log(disk_of(self.log).crashed(random.Random(seed)), config)
        assert self.durable <= self.log.end_offset <= len(self.values)
        del self.values[self.log.end_offset :]
        del self.epochs[self.log.end_offset :]
        assert self.log.start_offset <= self.start
        self.start = self.log.start_offset
        self.durable = self.log.end_offset
        self.epoch += 1
        self.sequence = 0

    @rule()
    def forget(self) -> None:
        """Memory is a cache of the files."""
        self.log.segments.active.drop_tail()
        for segment in self.log.segments.sealed:
            segment.forget()

    # Invariants.

    @invariant()
    def offsets_are_those_of_the_list(self) -> None:
        log = self.log
        assert log.offline is None
        assert (log.start_offset, log.end_offset) == (self.start, len(self.values))
        assert self.start <= log.durable_offset <= log.end_offset or not self.values
        assert log.size_bytes == sum(segment.size for segment in log.segments)

    @rule(data=st.data(), bytes_max=st.integers(0, 2000))
    def read(self, data: st.DataObject, bytes_max: int) -> None:
        offset = data.draw(st.integers(self.start, len(self.values)))
        records = read_from(self.log, offset, bytes_max)
        assert [record.value for record in records] == self.values[offset:]
        assert [record.offset for record in records] == list(range(offset, len(self.values)))

    @rule()
    def epochs_are_those_of_the_records(self) -> None:
        for offset in range(max(self.start, self.start_max), len(self.values)):
            assert self.log.epochs.of(offset) == self.epochs[offset]


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
