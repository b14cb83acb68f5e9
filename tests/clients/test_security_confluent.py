"""confluent-kafka over every protocol and mechanism, and refusals of others."""

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)

from tests.clients.secured import FAILED, MECHANISMS, PASSWORD, TOPIC, USER, Secured, secured
from tests.waiting import eventually

pytestmark = pytest.mark.clients

TIMEOUT_S = 15


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


def sasl(broker: Secured, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.at("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": broker.ca_file,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def bearer(broker: Secured, token: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.at("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": broker.ca_file,
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (token(), time.time() + 60),
    }


def mutual(broker: Secured, name: str) -> dict[str, Any]:
    pem = broker.certificate(name)
    return {
        "bootstrap.servers": broker.at("SSL"),
        "security.protocol": "SSL",
        "ssl.ca.location": broker.ca_file,
        "ssl.certificate.location": pem,
        "ssl.key.location": pem,
    }


def produce(settings: dict[str, Any], topic: str = TOPIC) -> tuple[KafkaError | None, list[str]]:
    """Outcome of one record, and the errors that the client logged."""
    heard: list[str] = []
    outcome: list[KafkaError | None] = []
    producer = Producer(
        {
            **settings,
            "message.timeout.ms": TIMEOUT_S * 1000,
            "log_level": 0,
            "error_cb": lambda error: heard.append(error.str()),
        }
    )
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(error))
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while not outcome and time.monotonic() < deadline:
        producer.poll(0.1)
        if heard:
            # It would keep trying; its first error is enough.
            producer.purge()
    assert outcome
    return outcome[0], heard


def consume(settings: dict[str, Any]) -> bytes | None:
    consumer = Consumer({**settings, "group.id": "guards", "log_level": 0})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                value: bytes | None = message.value()
                return value
        return None
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_user_with_a_password_produces_and_consumes(broker: Secured, mechanism: str) -> None:
    assert produce(sasl(broker, mechanism))[0] is None
    assert consume(sasl(broker, mechanism)) == b"value"


def test_user_with_a_token_produces(broker: Secured) -> None:
    assert produce(bearer(broker, broker.token))[0] is None


def test_client_certificate_is_mapped_to_its_principal(broker: Secured) -> None:
    assert produce(mutual(broker, "Bob"))[0] is None
    refused, _ = produce(mutual(broker, "Eve"))
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_password_and_unknown_user_get_the_same_error(
    broker: Secured, mechanism: str
) -> None:
    for settings in (
        sasl(broker, mechanism, "wrong"),
        {**sasl(broker, mechanism), "sasl.username": "unknown"},
    ):
        refused, heard = produce(settings)
        assert refused is not None
        assert any(FAILED in words for words in heard), heard


@pytest.mark.parametrize(
    "claims",
    [{"exp": 1_000}, {"iss": "another"}, {"sub": ""}],
    ids=["expired", "foreign", "without a subject"],
)
def test_invalid_token_is_refused(broker: Secured, claims: dict[str, Any]) -> None:
    refused, heard = produce(bearer(broker, lambda: broker.token(**claims)))
    assert refused is not None
    assert any(FAILED in words for words in heard), heard


def test_client_refuses_a_broker_with_an_untrusted_certificate(
    broker: Secured, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    refused, heard = produce({**sasl(broker, "PLAIN"), "ssl.ca.location": str(other)})
    assert refused is not None
    assert any("certificate verify failed" in words for words in heard), heard


def test_untrusted_client_certificate_is_refused(broker: Secured, tmp_path: Path) -> None:
    outsider = trustme.CA().issue_cert("eve@example.org", common_name="bob")
    pem = tmp_path / "outsider.pem"
    outsider.private_key_and_cert_chain_pem.write_to_path(str(pem))
    files = {"ssl.certificate.location": str(pem), "ssl.key.location": str(pem)}
    refused, _ = produce({**mutual(broker, "bob"), **files})
    assert refused is not None


def test_removed_user_cannot_reconnect(broker: Secured) -> None:
    broker.add_user("carol")
    broker.allow("User:carol", AclOperation.WRITE)
    settings = {**sasl(broker, "SCRAM-SHA-512"), "sasl.username": "carol"}
    assert produce(settings)[0] is None
    broker.remove_user("carol")
    refused, heard = produce(settings)
    assert refused is not None
    assert any(FAILED in words for words in heard), heard


def test_unauthorized_user_sees_no_topics_and_may_not_change_acls(broker: Secured) -> None:
    broker.add_user("dave")
    settings = {**sasl(broker, "SCRAM-SHA-256"), "sasl.username": "dave", "log_level": 0}
    admin = AdminClient(settings)
    assert TOPIC not in admin.list_topics(timeout=20).topics
    binding = AclBinding(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        "User:dave",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        admin.create_acls([binding])[binding].result(20)
    refused, _ = produce(settings)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_unauthorized_user_is_refused_credentials_in_rows(broker: Secured) -> None:
    """librdkafka ends its process if the answer as a whole is an error."""
    broker.add_user("frank")
    settings = {**sasl(broker, "SCRAM-SHA-256"), "sasl.username": "frank", "log_level": 0}
    admin = AdminClient(settings)
    with pytest.raises(KafkaException, match="needs DESCRIBE"):
        admin.describe_user_scram_credentials().result(20)
    with pytest.raises(KafkaException, match="needs DESCRIBE"):
        admin.describe_user_scram_credentials([USER])[USER].result(20)
    row = UserScramCredentialDeletion(USER, ScramMechanism.SCRAM_SHA_256)
    with pytest.raises(KafkaException, match="needs ALTER"):
        admin.alter_user_scram_credentials([row])[USER].result(20)


def test_denial_applies_from_the_next_request(broker: Secured) -> None:
    broker.add_user("erin")
    broker.allow("User:erin", AclOperation.WRITE)
    settings = {**sasl(broker, "SCRAM-SHA-256"), "sasl.username": "erin"}
    assert produce(settings)[0] is None
    everything = AclBindingFilter(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        "User:erin",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    removed = broker.admin.delete_acls([everything])[everything].result(20)
    assert len(removed) == 1
    refused, _ = produce(settings)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_pattern_subscription_returns_only_visible_topics(broker: Secured) -> None:
    """The broker finds the topics (KIP-848); what comes later counts, and what is taken away."""
    broker.add_user("frank")
    topics = ["found-seen", "found-hidden", "found-later"]
    for made in broker.admin.create_topics([NewTopic(name, 2, 1) for name in topics]).values():
        made.result(20)
    broker.allow("User:frank", AclOperation.READ, topic="found-seen")
    group = AclBinding(
        ResourceType.GROUP,
        "franks",
        ResourcePatternType.LITERAL,
        "User:frank",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    broker.admin.create_acls([group])[group].result(20)
    consumer = Consumer(
        {
            **sasl(broker, "SCRAM-SHA-256"),
            "sasl.username": "frank",
            "group.id": "franks",
            "group.protocol": "consumer",
            "log_level": 0,
        }
    )
    consumer.subscribe(["^found-.*"])

    def assigned() -> set[str]:
        consumer.poll(0.1)
        return {place.topic for place in consumer.assignment()}

    try:
        eventually(lambda: assigned() == {"found-seen"}, "what it may read")
        broker.allow("User:frank", AclOperation.READ, topic="found-later")
        eventually(lambda: assigned() == {"found-seen", "found-later"}, "what it may now, too")
        state = broker.admin.describe_consumer_groups(["franks"])["franks"].result(20)
        (member,) = state.members
        given = {place.topic for place in member.target_assignment.topic_partitions}
        assert given == {"found-seen", "found-later"}
    finally:
        consumer.close()


def test_new_certificates_are_used_without_a_restart(broker: Secured) -> None:
    """Connections that are open go on; new ones see the new certificate."""
    host, _, port = broker.at("SSL").rpartition(":")
    before = ssl.get_server_certificate((host, int(port)))
    producer = Producer({**sasl(broker, "PLAIN"), "log_level": 0})
    delivered: list[KafkaError | None] = []

    def send() -> None:
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _: delivered.append(error))
        producer.flush(10)

    send()
    leaf = broker.ca.issue_cert("127.0.0.1", "localhost")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(broker.directory / "new.pem"))
    (broker.directory / "new.pem").rename(broker.directory / "server.pem")
    eventually(lambda: ssl.get_server_certificate((host, int(port))) != before, "a new certificate")
    send()
    assert delivered == [None, None]
    assert produce(sasl(broker, "PLAIN"))[0] is None


def test_unauthenticated_request_closes_the_connection(broker: Secured) -> None:
    """A client without SASL is closed at the first request that needs a right."""
    refused, _ = produce({"bootstrap.servers": broker.at("SASL_PLAINTEXT")})
    assert refused is not None


def test_librdkafka_reauthenticates_before_its_session_ends(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """On one connection: a closed connection would be logged."""
    directory = tmp_path_factory.mktemp("forgetful")
    with secured(directory, **{"connections.max.reauth.ms": 1_000}) as broker:
        heard: list[str] = []
        outcome: list[KafkaError | None] = []
        settings = sasl(broker, "SCRAM-SHA-512") | {"log_level": 0}
        producer = Producer({**settings, "error_cb": lambda error: heard.append(error.str())})
        end = time.monotonic() + 3
        while time.monotonic() < end:
            producer.produce(TOPIC, b"x", on_delivery=lambda error, _: outcome.append(error))
            producer.flush(10)
        assert len(outcome) > 1
        assert set(outcome) == {None}
        assert heard == []
