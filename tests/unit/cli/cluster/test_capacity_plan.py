"""`penstock plan`: what is typed becomes a load, and the plan is printed."""

import json

import pytest
from click.testing import CliRunner

from penstock.cli.cluster.capacity_plan import parse_amount, parse_days, plan_command
from penstock.cli.terminal.errors import UserError


@pytest.mark.parametrize(
    ("text", "amount"), [("100k", 1e5), ("1Ki", 1024), ("2.5M", 2.5e6), ("7", 7), ("1g", 1e9)]
)
def test_amount_may_have_a_unit(text: str, amount: float) -> None:
    assert parse_amount(text, "--rate") == amount


@pytest.mark.parametrize("text", ["", "k", "1x", "-5", "0", "1e", "many"])
def test_invalid_amount_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match="--rate"):
        parse_amount(text, "--rate")


def test_retention_is_in_hours_days_or_weeks() -> None:
    assert [parse_days(text) for text in ("7d", "12h", "2w", "3")] == [7, 0.5, 14, 3]
    with pytest.raises(UserError, match="--retention"):
        parse_days("soon")


def test_plan_is_a_table_or_json() -> None:
    text = CliRunner().invoke(plan_command, ["--rate", "100k"])
    assert text.exit_code == 0
    assert "limited by disk space" in text.output
    found = CliRunner().invoke(plan_command, ["--rate", "100k", "--format", "json"])
    assert json.loads(found.output)["plan"]["nodes"] > 3
