"""What a job reads, as it is written on the command line."""

import pytest

from penstock.jobs.inputs import Side, parse_side
from penstock.spark.option_values import OptionError


def test_topics_and_archives() -> None:
    assert parse_side("orders") == Side("orders")
    assert parse_side("archive:/data/a:orders") == Side("orders", "/data/a")
    assert parse_side("archive:s3://bucket/a:orders") == Side("orders", "s3://bucket/a")


@pytest.mark.parametrize("text", ["archive:/data/a", "archive::orders", "archive:s3://bucket/a"])
def test_an_archive_without_a_topic_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="archive:FOLDER:TOPIC"):
        parse_side(text)
