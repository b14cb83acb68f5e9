"""Invalid options: one clear error each, before anything is read or written."""

from typing import Any

import pytest

from tests.spark.topics import Topics

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"subscribe": "t", "startingOfset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "many"}, "'maxOffsetsPerTrigger' must be"),
        ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
        ({"subscribe": "t", "kafka.sasl.mechanizm": "PLAIN"}, "'kafka.sasl.mechanism'"),
        ({"queue": "t", "group": "g"}, "option 'queue' is not available for a batch"),
        ({}, "'assign', 'queue' and 'topic'; none is set"),
    ],
)
def test_invalid_read_is_refused(
    spark: Any, topics: Topics, options: dict[str, str], why: str
) -> None:
    reader = spark.read.format("penstock").options(**options, brokers=topics.bootstrap)
    with pytest.raises(Exception, match=why):
        reader.load().collect()


def test_offsets_out_of_range_name_the_available_range(
    spark: Any, topics: Topics, topic: str
) -> None:
    topics.numbers(topic, 10)
    topics.trim(topic, 0, 5)
    starting = f'{{"{topic}":{{"0":2}}}}'
    reader = spark.read.format("penstock").options(subscribe=topic, brokers=topics.bootstrap)
    with pytest.raises(Exception, match="has offsets 5 to 10; missing 2 to 10"):
        reader.option("startingOffsets", starting).load().collect()
    rest = reader.option("startingOffsets", starting).option("failOnDataLoss", "false").load()
    assert sorted(row.offset for row in rest.collect()) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("select", "options", "why"),
    [
        ("id", {"topic": "t"}, "missing column 'value'"),
        ("cast(id as string) value", {}, "set the option 'topic'"),
        ("id value", {"topic": "t"}, "'value' must be binary or string, not bigint"),
        ("cast(id as string) value", {"topic": "t", "delivry": "x"}, "did you mean 'delivery'"),
    ],
)
def test_invalid_write_is_refused(
    spark: Any, topics: Topics, select: str, options: dict[str, str], why: str
) -> None:
    writer = spark.range(3).selectExpr(select).write.format("penstock").mode("append")
    with pytest.raises(Exception, match=why):
        writer.options(**options, brokers=topics.bootstrap).save()


def test_mode_overwrite_is_refused(spark: Any, topics: Topics, topic: str) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) value")
    writer = frame.write.format("penstock").mode("overwrite")
    with pytest.raises(Exception, match="unsupported mode 'overwrite'"):
        writer.options(topic=topic, brokers=topics.bootstrap).save()
