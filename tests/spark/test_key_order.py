"""Last record of each key in a topic whose partitions were increased, compacted or trimmed.

The model repeats the rule in plain Python: the last record of each partition by offset, and of
those the one with the newest timestamp.
"""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.jobs.cdc import apply_changes, read_table
from penstock.jobs.event_sourcing import rebuild
from penstock.jobs.inputs import JobInput
from penstock.pipelines import Latest
from penstock.pipelines.query_builder import load_table
from penstock.spark.option_values import OptionError
from penstock.wire.records import Record
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

KEYS = 50
MOMENT_MS = 1_790_000_000_000
SCHEMA = "id int, name string"


def named(key: int, name: str, at_ms: int = -1) -> Record:
    return Record(0, at_ms, b"%d" % key, json.dumps({"id": key, "name": name}).encode())


@pytest.fixture
def grown(topics: Topics, topic: str) -> str:
    """Topic with every key written before and after it has grown from 3 to 4 partitions."""
    topics.create(topic, 3)
    topics.fill(topic, [named(key, "old") for key in range(KEYS)])
    topics.grow(topic, 4)
    topics.fill(topic, [named(key, "new") for key in range(KEYS)])
    moved = {message.key for message in topics.read(topic) if message.partition == 3}
    assert 0 < len(moved) < KEYS
    return topic


def table_of(spark: Any, topics: Topics, topic: str, **options: Any) -> dict[int, str]:
    table = load_table(spark, Latest(topic, SCHEMA, **options), {"brokers": topics.bootstrap})
    return {row["id"]: row["name"] for row in table.collect()}


def change_table(spark: Any, topics: Topics, topic: str, path: Path, **options: Any) -> Any:
    ends = {str(p): end for (_, p), end in topics.ends(topic).items()}
    cluster = {"brokers": topics.bootstrap}
    done = apply_changes(
        spark,
        cluster=cluster,
        topic=topic,
        schema=SCHEMA,
        path=str(path),
        ends=ends,
        **options,
    )
    found = {row["id"]: row["name"] for row in read_table(spark, str(path)).collect()}
    assert done.rows == len(found)
    return found


def test_latest_holds_the_newest_value_after_partitions_were_added(
    spark: Any, topics: Topics, grown: str
) -> None:
    assert table_of(spark, topics, grown) == dict.fromkeys(range(KEYS), "new")


def test_cdc_holds_the_newest_row_after_partitions_were_added(
    spark: Any, topics: Topics, grown: str, tmp_path: Path
) -> None:
    assert change_table(spark, topics, grown, tmp_path) == dict.fromkeys(range(KEYS), "new")


def test_events_are_folded_in_order_after_partitions_were_added(
    spark: Any, topics: Topics, grown: str
) -> None:
    rows = rebuild(spark, cluster={"brokers": topics.bootstrap}, side=JobInput(grown)).collect()
    assert {json.loads(row["state"])["name"] for row in rows} == {"new"}
    assert {row["events"] for row in rows} == {2}


@pytest.mark.parametrize("how", ["latest", "cdc"])
def test_tie_between_partitions_fails_unless_a_rule_is_given(
    spark: Any, topics: Topics, topic: str, tmp_path: Path, how: str
) -> None:
    def read(**options: Any) -> Any:
        if how == "latest":
            return table_of(spark, topics, topic, **options)
        return change_table(spark, topics, topic, tmp_path, **options)

    topics.create(topic, 2)
    topics.fill(topic, [named(1, "a", MOMENT_MS), named(2, "same", MOMENT_MS)], 1)
    topics.fill(topic, [named(1, "b", MOMENT_MS), named(2, "same", MOMENT_MS)], 0)
    with pytest.raises(Exception, match="ties to higher-partition") as caught:
        read()
    assert "UndecidedOrder" in str(caught.value)
    assert read(ties="higher-partition") == {1: "a", 2: "same"}
    # A newer value decides.
    topics.fill(topic, [named(1, "c", MOMENT_MS + 1)], 0)
    assert read() == {1: "c", 2: "same"}


class Event(NamedTuple):
    key: int
    partition: int
    at_ms: int
    name: str | None
    """None: a tombstone."""


def history(draw: random.Random, key: int) -> list[Event]:
    """Events of a key as they arrive, while its topic grows; some are late, some delete."""
    events: list[Event] = []
    homes = draw.sample(range(6), draw.randint(1, 4))
    # The key moves when the topic grows; a producer with old metadata still writes to its old home.
    for move, home in enumerate(homes):
        for _ in range(draw.randint(1, 3)):
            late_ms = draw.choice([0, 0, 0, draw.randint(0, 400)])
            place = homes[move - 1] if move and draw.random() < 0.2 else home
            # Distinct timestamps: the last digits are the number of the event.
            at_ms = MOMENT_MS + (len(events) * 100 - late_ms) * 50 + len(events)
            name = None if draw.random() < 0.25 else f"{key}.{len(events)}"
            events.append(Event(key, place, at_ms, name))
    return events


def compacted(draw: random.Random, events: list[Event]) -> list[Event]:
    """Some events before the last one of their partition are deleted."""
    return [
        event
        for index, event in enumerate(events)
        if draw.random() < 0.5
        or not any(e.partition == event.partition for e in events[index + 1 :])
    ]


def model(events: list[Event]) -> dict[int, str]:
    last = {(event.key, event.partition): event for event in events}
    newest: dict[int, Event] = {}
    for event in last.values():
        if event.key not in newest or newest[event.key].at_ms < event.at_ms:
            newest[event.key] = event
    return {key: event.name for key, event in newest.items() if event.name is not None}


def record_of(event: Event) -> Record:
    made = named(event.key, event.name or "", event.at_ms)
    return made if event.name else made._replace(value=None)


def test_tables_match_the_model_in_random_histories(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """300 keys with random growth, compaction, deletions and late data; the job runs 3 times."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    topics.create(topic, 6)
    histories = [history(draw, key) for key in range(300)]
    whole = [event for events in histories for event in events]
    assert model(whole) == model([e for events in histories for e in compacted(draw, events)])
    written: list[Event] = []
    for part in range(3):
        # Each third of every history, so that most keys change in every run.
        fresh: list[Event] = []
        for events in histories:
            cut = [len(events) * n // 3 for n in (part, part + 1)]
            arrived = events[cut[0] : cut[1]]
            fresh += compacted(draw, arrived) if part else arrived
        written += fresh
        for partition in range(6):
            mine = [record_of(event) for event in fresh if event.partition == partition]
            topics.fill(topic, mine, partition)
        expected = model(written)
        assert change_table(spark, topics, topic, tmp_path) == expected, f"seed {seed}"
        assert table_of(spark, topics, topic) == expected, f"seed {seed}"


def test_table_of_an_earlier_release_is_continued(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Its rows have no state: every later event is newer than they are."""
    topics.create(topic, 2)
    topics.fill(topic, [named(1, "a", MOMENT_MS), named(2, "b", MOMENT_MS)], 1)
    assert change_table(spark, topics, topic, tmp_path) == {1: "a", 2: "b"}
    for file in sorted((tmp_path / "_state").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (tmp_path / "_state").rmdir()
    topics.fill(topic, [named(1, "late", MOMENT_MS - 5)], 0)
    assert change_table(spark, topics, topic, tmp_path) == {1: "late", 2: "b"}
    # The next topic of this name has another id.
    topics.recreate(topic, 2)
    topics.fill(topic, [named(1, "other", MOMENT_MS)] * 5, 1)
    with pytest.raises(OptionError, match="created again"):
        change_table(spark, topics, topic, tmp_path)


def test_deletion_is_remembered_and_forgotten_after_a_week(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    week_ms = 7 * 86_400_000
    gone = named(1, "", MOMENT_MS)._replace(value=None)
    topics.create(topic, 2)
    topics.fill(topic, [gone], 1)
    assert change_table(spark, topics, topic, tmp_path) == {}
    # Older than the deletion, from another partition.
    topics.fill(topic, [named(1, "late", MOMENT_MS - 5)], 0)
    assert change_table(spark, topics, topic, tmp_path) == {}
    topics.fill(topic, [named(2, "b", MOMENT_MS + week_ms + 1)], 0)
    assert change_table(spark, topics, topic, tmp_path) == {2: "b"}
    assert spark.read.parquet(str(tmp_path / "_state" / "v00000003")).count() == 1
