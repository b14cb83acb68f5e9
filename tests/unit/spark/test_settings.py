"""Settings: options together, and what does not go together."""

import pickle

import pytest

from penstock.client.consumer.fetched import READ_COMMITTED
from penstock.client.list_offsets import EARLIEST, LATEST
from penstock.client.metadata import TopicPartition
from penstock.spark.option_values import OptionError
from penstock.spark.settings import COLUMNS, read_settings, selected_columns, write_settings

HERE = {"brokers": "localhost:9092"}
READS = {**HERE, "subscribe": "b,a"}


def test_a_read_says_what_was_asked() -> None:
    settings = read_settings(
        {**READS, "kafka.isolation.level": "read_committed"}, is_streaming=False
    )
    assert settings.topics == ("a", "b")
    assert settings.isolation_level == READ_COMMITTED
    assert settings.columns == COLUMNS
    assert settings.starting.everywhere == EARLIEST
    assert read_settings(READS, is_streaming=True).starting.everywhere == LATEST
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_assigned_partitions_are_read_alone() -> None:
    settings = read_settings({**HERE, "assign": '{"t":[2,0]}'}, is_streaming=False)
    assert settings.assigned == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert settings.topics == ("t",)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"subscribePattern": "x.*"}, "are given"),
        ({"subscribe": "t", "startingOffsets": "committed"}, "needs the option 'group'"),
        ({"columns": "vale"}, "did you mean 'value'"),
        ({"columns": "key,key"}, "twice"),
        ({"startingOffsets": "latest"}, "is for streams"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "is for streams"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "would make the batch empty"),
    ],
)
def test_what_does_not_go_together_is_refused(more: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        read_settings({**READS, **more}, is_streaming=False)


def test_what_to_read_must_be_said() -> None:
    with pytest.raises(OptionError, match="none is given"):
        read_settings(HERE, is_streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = "latest" if name == "endingOffsets" else "1"
    with pytest.raises(OptionError, match="a stream does not end"):
        read_settings({**READS, name: value}, is_streaming=True)


def test_the_shape_follows_columns_and_headers() -> None:
    assert selected_columns({**READS, "columns": "offset,value"}) == ("offset", "value")
    assert selected_columns({**READS, "includeHeaders": "true"}) == (*COLUMNS, "headers")
    assert selected_columns({**READS, "emit": "ranges"}) is None


def test_streams_are_written_exactly_once_and_batches_at_least_once_by_default() -> None:
    assert write_settings(HERE, is_streaming=True).is_exactly_once
    assert not write_settings(HERE, is_streaming=False).is_exactly_once
    chosen = {**HERE, "delivery": "at-least-once"}
    assert not write_settings(chosen, is_streaming=True).is_exactly_once


def test_a_queue_is_read_through_a_group_and_by_streams() -> None:
    queue = {**HERE, "queue": "jobs", "group": "etl"}
    settings = read_settings(queue, is_streaming=True)
    assert settings.is_queue
    assert settings.topics == ("jobs",)
    assert settings.renew_for_ms == 3_600_000
    with pytest.raises(OptionError, match="by streams only"):
        read_settings(queue, is_streaming=False)
    with pytest.raises(OptionError, match="name it in the option 'group'"):
        read_settings({**HERE, "queue": "jobs"}, is_streaming=True)
    with pytest.raises(OptionError, match="'startingOffsets' is for topics"):
        read_settings({**queue, "startingoffsets": "earliest"}, is_streaming=True)
    with pytest.raises(OptionError, match="'subscribe' and 'queue' are given"):
        read_settings({**queue, "subscribe": "jobs"}, is_streaming=True)


def test_a_batch_can_have_a_number() -> None:
    numbered = {**HERE, "delivery": "exactly-once", "txnAppId": "load", "txnVersion": "7"}
    assert write_settings(numbered, is_streaming=False).write_id == ("load", 7)
    to_topic = write_settings({**numbered, "topic": "orders"}, is_streaming=False)
    assert to_topic.write_id == ("load.orders", 7)
    with pytest.raises(OptionError, match="belong together"):
        write_settings({**HERE, "txnAppId": "load"}, is_streaming=False)
    with pytest.raises(OptionError, match="are for batches"):
        write_settings(numbered, is_streaming=True)
    with pytest.raises(OptionError, match="need delivery 'exactly-once'"):
        write_settings({**numbered, "delivery": "at-least-once"}, is_streaming=False)


def test_secrets_are_not_shown() -> None:
    settings = read_settings({**READS, "kafka.sasl.password": "hunter2"}, is_streaming=False)
    assert ("sasl.password", "hunter2") in settings.access.security
    assert "hunter2" not in repr(settings)
