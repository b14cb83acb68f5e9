"""Penstock's own client over SASL_SSL, with the rights of an ordinary user."""

from collections.abc import Iterator

import pytest

from penstock import Refused, SyncClient
from tests.clients.secured import PASSWORD, TOPIC, USER, Secured, secured

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


def settings(broker: Secured, password: str = PASSWORD) -> dict[str, str]:
    return {
        "sasl.username": USER,
        "sasl.password": password,
        "ssl.ca.location": broker.ca_file,
    }


def test_a_user_publishes_and_reads_what_he_may(broker: Secured) -> None:
    """He may not configure groups: where a new group begins stays as the administrator has it."""
    with SyncClient(broker.at("SASL_SSL"), security=settings(broker)) as client:
        assert client.poll(TOPIC, "workers", wait=0.5) == []
        assert client.publish(TOPIC, b"hello").offset >= 0
        (message,) = client.poll(TOPIC, "workers", wait=30)
        assert message.payload == b"hello"
        message.ack()
        with client.consume(TOPIC, "readers") as log:
            assert next(log).payload == b"hello"
        with pytest.raises(Refused):
            client.publish("forbidden", b"x")


def test_a_wrong_password_is_refused(broker: Secured) -> None:
    with pytest.raises(Refused):
        SyncClient(broker.at("SASL_SSL"), security=settings(broker, "wrong")).connect()


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sasl\.username"):
        SyncClient(security={"sasl.user": "bob"})
