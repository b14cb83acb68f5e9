"""Settings from combinations of options, and refused combinations."""

import pickle

import pytest

from penstock.client.consumer.fetched import READ_COMMITTED
from penstock.client.list_offsets import EARLIEST, LATEST
from penstock.client.metadata import TopicPartition
from penstock.spark.option_values import OptionError
from penstock.spark.settings import COLUMNS, read_settings, selected_columns, write_settings

HERE = {"brokers": "localhost:9092"}
READS = {**HERE, "subscribe": "b,a"}


def test_read_settings_hold_the_options() -> None:
    settings = read_settings(
        {**READS, "kafka.isolation.level": "read_committed"}, is_streaming=False
    )
    assert settings.topics == ("a", "b")
    assert settings.isolation_level == READ_COMMITTED
    assert settings.columns == COLUMNS
    assert settings.starting.everywhere == EARLIEST
    assert read_settings(READS, is_streaming=True).starting.everywhere == LATEST
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_assign_selects_only_its_partitions() -> None:
    settings = read_settings({**HERE, "assign": '{"t":[2,0]}'}, is_streaming=False)
    assert settings.assigned == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert settings.topics == ("t",)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"subscribePattern": "x.*"}, "'subscribe' and 'subscribePattern'"),
        ({"subscribe": "t", "startingOffsets": "committed"}, "option 'group'"),
        ({"columns": "vale"}, "did you mean 'value'"),
        ({"columns": "key,key"}, "'columns'"),
        ({"startingOffsets": "latest"}, "startingOffsets 'latest'"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets -1"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets -2"),
    ],
)
def test_contradictory_options_are_refused(more: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        read_settings({**READS, **more}, is_streaming=False)


def test_read_without_a_source_is_refused() -> None:
    with pytest.raises(OptionError, match="none is set"):
        read_settings(HERE, is_streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_ending_option_of_a_stream_is_refused(name: str) -> None:
    value = "latest" if name == "endingOffsets" else "1"
    with pytest.raises(OptionError, match=f"'{name}'"):
        read_settings({**READS, name: value}, is_streaming=True)


def test_selected_columns_follow_the_options() -> None:
    assert selected_columns({**READS, "columns": "offset,value"}) == ("offset", "value")
    assert selected_columns({**READS, "includeHeaders": "true"}) == (*COLUMNS, "headers")
    assert selected_columns({**READS, "emit": "ranges"}) is None


def test_default_delivery_is_exactly_once_for_streams_only() -> None:
    assert write_settings(HERE, is_streaming=True).is_exactly_once
    assert not write_settings(HERE, is_streaming=False).is_exactly_once
    chosen = {**HERE, "delivery": "at-least-once"}
    assert not write_settings(chosen, is_streaming=True).is_exactly_once


def test_queue_read_needs_a_stream_and_a_group() -> None:
    queue = {**HERE, "queue": "jobs", "group": "etl"}
    settings = read_settings(queue, is_streaming=True)
    assert settings.is_queue
    assert settings.topics == ("jobs",)
    assert settings.renew_for_ms == 3_600_000
    with pytest.raises(OptionError, match="readStream"):
        read_settings(queue, is_streaming=False)
    with pytest.raises(OptionError, match="option 'group'"):
        read_settings({**HERE, "queue": "jobs"}, is_streaming=True)
    with pytest.raises(OptionError, match="'startingOffsets'"):
        read_settings({**queue, "startingoffsets": "earliest"}, is_streaming=True)
    with pytest.raises(OptionError, match="'subscribe' and 'queue' are set"):
        read_settings({**queue, "subscribe": "jobs"}, is_streaming=True)


def test_write_id_of_a_batch() -> None:
    numbered = {**HERE, "delivery": "exactly-once", "txnAppId": "load", "txnVersion": "7"}
    assert write_settings(numbered, is_streaming=False).write_id == ("load", 7)
    to_topic = write_settings({**numbered, "topic": "orders"}, is_streaming=False)
    assert to_topic.write_id == ("load.orders", 7)
    with pytest.raises(OptionError, match="set together"):
        write_settings({**HERE, "txnAppId": "load"}, is_streaming=False)
    with pytest.raises(OptionError, match="apply to batches"):
        write_settings(numbered, is_streaming=True)
    with pytest.raises(OptionError, match="need delivery 'exactly-once'"):
        write_settings({**numbered, "delivery": "at-least-once"}, is_streaming=False)


def test_repr_of_settings_hides_secrets() -> None:
    settings = read_settings({**READS, "kafka.sasl.password": "hunter2"}, is_streaming=False)
    assert ("sasl.password", "hunter2") in settings.access.security
    assert "hunter2" not in repr(settings)
