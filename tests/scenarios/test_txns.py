"""Runs the transcripts `txns_*.txt`: a line is a call, `->` and what must come of it.

    init ID [as P/E] [timeout=MS] [vN]      -> P/E or an error's name
    add ID P/E PARTITION... [vN]            -> ok
    offsets ID P/E GROUP [vN]               -> ok
    produce ID P/E PARTITION [vN]           -> ok; the code as Produce vN says it
    commit|abort ID P/E [vN]                -> the next P/E (from v5 on), else ok
    markers                                 -> what may be written: `ID P/E commit PARTITION...`
    written ID PARTITION...                 -> the state of the id after that report
    late                                    -> the same, for a repetition of the first report
    wait MS | crash | state ID | describe ID

P/E is producer id and epoch; ids count from 1000. A partition is topic:index.
"""

from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.state.transactions import add_partitions
from penstock.state.transactions.records import STATE_NAMES, Partition, ProducerEpoch
from penstock.state.transactions.shard import WriteMarkers
from tests.unit.state.transactions.building import Host, add, add_offsets, end, init

SCENARIOS = sorted(Path(__file__).parent.glob("txns_*.txt"))


class Runner:
    def __init__(self) -> None:
        self.host = Host()
        self.written: list[WriteMarkers] = []

    def run(self, line: str) -> str:
        words = line.split()
        version = next((int(w[1:]) for w in words if w[0] == "v" and w[1:].isdigit()), None)
        words = [w for w in words if not (w[0] == "v" and w[1:].isdigit())]
        try:
            return str(getattr(self, f"_{words[0]}")(version, *words[1:]))
        except Refused as refused:
            return refused.code.name

    def _init(self, version: int | None, name: str, *rest: str) -> str:
        expected = _producer(rest[rest.index("as") + 1]) if "as" in rest else None
        timeout = next((int(w[8:]) for w in rest if w.startswith("timeout=")), 60_000)
        reply = self.host.ask("InitProducerId", init(name, expected, timeout), version or 5)
        if reply.error_code != ErrorCode.NONE:
            return ErrorCode(reply.error_code).name
        return f"{reply.producer_id}/{reply.producer_epoch}"

    def _add(self, version: int | None, name: str, producer: str, *partitions: str) -> str:
        request = add(_producer(producer), map(_partition, partitions), name)
        self.host.ask("AddPartitionsToTxn", request, version or 3)
        return "ok"

    def _offsets(self, version: int | None, name: str, producer: str, group: str) -> str:
        request = add_offsets(_producer(producer), name, group)
        self.host.ask("AddOffsetsToTxn", request, version or 3)
        return "ok"

    def _produce(self, version: int | None, name: str, producer: str, partition: str) -> str:
        version = version or add_partitions.PRODUCE_ADDS_SINCE
        who, shard = _producer(producer), self.host.shard
        try:
            if version >= add_partitions.PRODUCE_ADDS_SINCE:
                added = [_partition(partition)]
                now_ms = self.host.now_ms
                self.host.run(
                    shard.add_partitions_from_produce(name, *who, added, "produce", now_ms)
                )
                assert self.host.replies.pop("produce") is ErrorCode.NONE
            else:
                shard.verify(name, *who, *_partition(partition))
        except Refused as refused:
            return add_partitions.for_produce(refused.code, version).name
        return "ok"

    def _commit(self, version: int | None, name: str, producer: str) -> str:
        return self._end(version, name, producer, committed=True)

    def _abort(self, version: int | None, name: str, producer: str) -> str:
        return self._end(version, name, producer, committed=False)

    def _end(self, version: int | None, name: str, producer: str, committed: bool) -> str:
        request = end(_producer(producer), committed=committed, name=name)
        reply = self.host.ask("EndTxn", request, 5 if version is None else version)
        if version is not None and version < 5:
            return "ok"
        return f"{reply.producer_id}/{reply.producer_epoch}"

    def _markers(self, version: int | None) -> str:
        return "; ".join(_show(write) for write in self.host.markers) or "none"

    def _written(self, version: int | None, name: str, *partitions: str) -> str:
        write = next(w for w in self.host.markers if w.transactional_id == name)
        done = tuple(map(_partition, partitions))
        left = tuple(p for p in write.partitions if p not in done)
        self.host.markers.remove(write)
        if left:
            self.host.markers.append(write._replace(partitions=left))
        self.written.append(write._replace(partitions=done))
        self.host.report(self.written[-1])
        return self._state(None, name)

    def _late(self, version: int | None) -> str:
        self.host.report(self.written[0])
        return self._state(None, self.written[0].transactional_id)

    def _wait(self, version: int | None, ms: str) -> str:
        self.host.wait(int(ms))
        return ""

    def _crash(self, version: int | None) -> str:
        before = self.host.shard.durable_state()
        self.host.crash()
        assert self.host.shard.durable_state() == before
        return ""

    def _state(self, version: int | None, name: str) -> str:
        record = self.host.shard.durable_state().get(name)
        return STATE_NAMES[record.state] if record else "forgotten"

    def _describe(self, version: int | None, name: str) -> str:
        row = self.host.shard.describe_transaction(name)
        if row.error_code != ErrorCode.NONE:
            return ErrorCode(row.error_code).name
        partitions = [f"{t.topic}:{p}" for t in row.topics for p in t.partitions]
        producer = f"{row.producer_id}/{row.producer_epoch}"
        return " ".join((row.transaction_state, producer, *partitions))


def _producer(word: str) -> ProducerEpoch:
    producer_id, epoch = word.split("/")
    return ProducerEpoch(int(producer_id), int(epoch))


def _partition(word: str) -> Partition:
    topic, index = word.rsplit(":", 1)
    return topic, int(index)


def _show(write: WriteMarkers) -> str:
    outcome = "commit" if write.committed else "abort"
    producer = f"{write.producer_id}/{write.producer_epoch}"
    partitions = [f"{topic}:{index}" for topic, index in write.partitions]
    return " ".join((write.transactional_id, producer, outcome, *partitions))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_coordinator_follows_the_transcript(path: Path) -> None:
    runner = Runner()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        call, _, wanted = (part.strip() for part in line.partition("->"))
        assert runner.run(call) == wanted, f"{path.name}:{number}: {line}"
        assert runner.host.replayed() == runner.host.shard.durable_state()


def test_transcripts_exist() -> None:
    assert len(SCENARIOS) >= 6
