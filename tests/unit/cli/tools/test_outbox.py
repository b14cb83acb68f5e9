"""Claims about `penstock outbox`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.relay import open_engine
from penstock.cli.main import run
from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'app.db'}"


def enqueue(url: str, *texts: str, topic: str = "orders") -> None:
    engine = open_engine(url)
    with engine.begin() as connection:
        for text in texts:
            Outbox().enqueue(connection, topic, text)
    engine.dispose()


def test_outbox_is_created_filled_and_relayed(
    broker: Broker, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["outbox", "init", "-d", url]) == 0
    assert run(["outbox", "init", "-d", url]) == 0, "once more does no harm"
    enqueue(url, "a", "b")
    relay = ["outbox", "relay", "--once", "--poll", "5ms", "-d", url, "-b", broker.bootstrap]
    assert run(relay) == 0
    assert "2 messages sent" in capsys.readouterr().err
    assert [message.value for message in broker.messages("orders")] == [b"a", b"b"]
    assert run(["outbox", "status", "-d", url]) == 0
    assert "sent" in capsys.readouterr().out


def test_failed_messages_are_shown_and_sent_again(
    broker: Broker, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["outbox", "init", "-d", url])
    enqueue(url, "x", topic="no such name!")
    assert run(["outbox", "relay", "--once", "-d", url, "-b", broker.bootstrap]) == 0
    capsys.readouterr()
    assert run(["outbox", "status", "-d", url, "--format", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["messages"] == {"pending": 0, "claimed": 0, "sent": 0, "failed": 1}
    assert "topic name" in status["failed"][0]["error"]
    assert run(["outbox", "status", "-d", url]) == 0
    assert "no such name!" in capsys.readouterr().out
    assert run(["outbox", "retry", "-d", url]) == 0
    assert capsys.readouterr().out == "1 messages will be sent again\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "-d", "nonsense"], "not a database URL"),
        (["status", "-d", "sqlite:///{tmp}/new.db"], "create it with `penstock outbox init`"),
        (["relay", "-d", "sqlite:///{tmp}/new.db", "--keep", "soon"], "--keep"),
        (["status", "-d", "mysql://host/db"], "penstock-mq[outbox,postgres]"),
        (["status", "-d", "postgresql://127.0.0.1:1/db"], "database error"),
    ],
)
def test_outbox_errors_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["outbox", *(word.format(tmp=tmp_path) for word in arguments)]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_relay_without_tables_names_the_init_command(
    broker: Broker, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["outbox", "relay", "--once", "-d", url, "-b", broker.bootstrap]) == 1
    assert "penstock outbox init" in capsys.readouterr().err
