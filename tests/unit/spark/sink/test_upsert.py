"""Writing of batches in foreachBatch, without Spark."""

import pytest

from penstock.spark import upsert
from penstock.spark.option_values import OptionError
from penstock.spark.sink.upsert import shortened


def test_invalid_options_are_refused_before_the_query_starts() -> None:
    with pytest.raises(OptionError, match="did you mean 'topic'"):
        upsert(brokers="b:1", topc="t")
    with pytest.raises(OptionError, match=r"missing option 'kafka\.bootstrap\.servers'"):
        upsert(topic="t")


def test_error_of_a_batch_is_shortened_to_its_messages() -> None:
    error = (
        "An error occurred while calling o58.save.\n: org.apache.spark.SparkException: Job 2\n"
        + "\tat org.apache.spark.Some.thing(Some.scala:1)\n" * 500
        + 'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    go()\n'
        + "penstock.spark.data_loss.DataLoss: orders[0] ends at 5\n"
    )
    assert shortened(error) == (
        "An error occurred while calling o58.save.\n: org.apache.spark.SparkException: Job 2\n"
        "penstock.spark.data_loss.DataLoss: orders[0] ends at 5"
    )
    assert len(shortened("x" * 5_000)) == 1_000
