"""`penstock quota` against a real broker."""

import json

import pytest

from tests.clients.test_cli import Cli
from tests.conftest import Broker

pytestmark = pytest.mark.clients


def test_quotas_are_set_listed_and_removed(broker: Broker, topic: str) -> None:
    cli, user = Cli(broker.bootstrap), f"user-{topic}"

    def listed() -> list[dict[str, object]]:
        rows: list[dict[str, object]] = json.loads(cli.ok("quota", "list", "--format", "json"))
        return [row for row in rows if row.get("user") == user]

    cli.ok("quota", "set", "--user", user, "producer_byte_rate=1000", "request_percentage=12.5")
    both = ("--user", user, "--client-id-default")
    cli.ok("quota", "set", *both, "consumer_byte_rate=5")
    assert sorted((row["quota"], row["value"], row.get("client-id")) for row in listed()) == [
        ("consumer_byte_rate", 5, "<default>"),
        ("producer_byte_rate", 1000, None),
        ("request_percentage", 12.5, None),
    ]
    assert user in cli.ok("quota", "list")
    cli.ok("quota", "remove", "--user", user, "request_percentage", "--yes")
    cli.ok("quota", "remove", *both, "--yes")
    assert [row["quota"] for row in listed()] == ["producer_byte_rate"]
    cli.ok("quota", "remove", "--user", user, "--yes")
    assert listed() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "producer_byte_rate=1"), "no entity given"),
        (("set", "--user", "a", "--user-default", "producer_byte_rate=1"), "two quotas"),
        (("set", "--user", "a", "speed=1"), "use one of producer_byte_rate"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "'fast' is not a number"),
        (("set", "--user", "a", "producer_byte_rate=0"), "greater than 0"),
        (("set", "--ip", "10.0.0.1", "producer_byte_rate=1"), "connection_creation_rate"),
        (("remove", "--user", "unknown-user", "--yes"), "has no such quota"),
    ],
)
def test_invalid_quota_is_refused_in_one_line(
    broker: Broker, arguments: tuple[str, ...], said: str
) -> None:
    done = Cli(broker.bootstrap).run("quota", *arguments)
    assert done.returncode != 0
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr
