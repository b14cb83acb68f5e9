"""Inputs of jobs in command-line notation."""

import pytest

from penstock.jobs.inputs import JobInput, parse_input
from penstock.spark.option_values import OptionError


def test_inputs_are_topics_or_archives() -> None:
    assert parse_input("orders") == JobInput("orders")
    assert parse_input("archive:/data/a:orders") == JobInput("orders", "/data/a")
    assert parse_input("archive:s3://bucket/a:orders") == JobInput("orders", "s3://bucket/a")


@pytest.mark.parametrize("text", ["archive:/data/a", "archive::orders", "archive:s3://bucket/a"])
def test_archive_without_topic_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="archive:FOLDER:TOPIC"):
        parse_input(text)
