"""The Java client over SASL_SSL and with certificates, refusals, and Kafka's tools."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.admin import AclOperation
from cryptography.hazmat.primitives import serialization

from tests.clients.javas import Jvm, kafka_tools
from tests.clients.secured import FAILED, MECHANISMS, PASSWORD, TOPIC, USER, Secured, secured

pytestmark = [pytest.mark.clients, pytest.mark.java]

SECURITY = "org.apache.kafka.common.security"
REAUTH_MS = 1_500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Logins have to be repeated."""
    directory = tmp_path_factory.mktemp("secured")
    with secured(directory, **{"connections.max.reauth.ms": REAUTH_MS}) as found:
        yield found


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    started = Jvm()
    yield started
    started.close()


@pytest.fixture(scope="module")
def tools() -> Iterator[Jvm]:
    started = kafka_tools()
    yield started
    started.close()


def java(
    jvm: Jvm, broker: Secured, settings: dict[str, str], repeated: int = 0, ca: str = ""
) -> dict[str, Any]:
    """Result of the Java producer for one record, or for as many as reauthentication takes."""
    path = broker.directory / "java.properties"
    base = {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca or broker.ca_file}
    path.write_text("".join(f"{name}={value}\n" for name, value in (base | settings).items()))
    said = jvm.run("penstock.clients.Secured", str(path), TOPIC, str(repeated))
    found = [line for line in said.splitlines() if line.startswith("{")]
    assert found, said
    answer: dict[str, Any] = json.loads(found[-1])
    return answer


def sasl(
    broker: Secured, mechanism: str, user: str = USER, password: str = PASSWORD
) -> dict[str, str]:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    module = f"{SECURITY}.{kind}LoginModule"
    return {
        "bootstrap.servers": broker.at("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def bearer(broker: Secured, **claims: Any) -> dict[str, str]:
    path = broker.directory / "token.jwt"
    path.write_text(broker.token(iat=int(time.time()) - 120, **claims))
    return {
        "bootstrap.servers": broker.at("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": (
            f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }


def mutual(broker: Secured, pem: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.at("SSL"),
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": pkcs8(Path(pem)),
    }


def pkcs8(path: Path) -> str:
    """Java reads private keys as PKCS#8 only."""
    pem = path.read_bytes()
    shown = serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made = path.with_suffix(".pkcs8")
    made.write_bytes(shown + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return str(made)


def assert_told_nothing(answer: dict[str, Any]) -> None:
    """The same words whatever was wrong."""
    assert answer["error"] == "SaslAuthenticationException", answer
    assert FAILED in answer["message"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_user_logs_in_and_a_wrong_password_is_refused(
    jvm: Jvm, broker: Secured, mechanism: str
) -> None:
    assert java(jvm, broker, sasl(broker, mechanism))["offset"] >= 0
    assert_told_nothing(java(jvm, broker, sasl(broker, mechanism, password="wrong")))
    assert_told_nothing(java(jvm, broker, sasl(broker, mechanism, user="unknown")))


def test_user_with_a_token_logs_in(tools: Jvm, broker: Secured) -> None:
    """With the jars of Kafka itself: the client alone cannot read tokens."""
    answer = java(tools, broker, bearer(broker))
    assert answer.get("offset", -1) >= 0, answer


@pytest.mark.parametrize(
    "claims", [{"iss": "others"}, {"exp": int(time.time()) - 60}], ids=["foreign", "expired"]
)
def test_invalid_token_is_refused(tools: Jvm, broker: Secured, claims: dict[str, Any]) -> None:
    assert_told_nothing(java(tools, broker, bearer(broker, **claims)))


def test_removed_user_cannot_reconnect(jvm: Jvm, broker: Secured) -> None:
    broker.add_user("frank")
    broker.allow("User:frank", AclOperation.WRITE)
    settings = sasl(broker, "SCRAM-SHA-512", "frank")
    assert java(jvm, broker, settings)["offset"] >= 0
    broker.remove_user("frank")
    assert_told_nothing(java(jvm, broker, settings))


def test_client_certificate_is_accepted_and_an_untrusted_one_refused(
    jvm: Jvm, broker: Secured, tmp_path: Path
) -> None:
    assert java(jvm, broker, mutual(broker, broker.certificate("bob")))["offset"] >= 0
    pem = tmp_path / "outsider.pem"
    outsider = trustme.CA().issue_cert("eve@example.org", common_name="bob")
    outsider.private_key_and_cert_chain_pem.write_to_path(str(pem))
    answer = java(jvm, broker, mutual(broker, str(pem)) | {"max.block.ms": "5000"})
    assert answer["error"] in ("SslAuthenticationException", "TimeoutException"), answer


def test_client_refuses_a_broker_with_an_untrusted_certificate(
    jvm: Jvm, broker: Secured, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    answer = java(jvm, broker, sasl(broker, "PLAIN"), ca=str(other))
    assert answer["error"] == "SslAuthenticationException", answer


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_client_reauthenticates_before_its_session_ends(
    jvm: Jvm, broker: Secured, mechanism: str
) -> None:
    answer = java(jvm, broker, sasl(broker, mechanism), repeated=2)
    assert answer.get("repeated", 0) >= 2, answer


# -- Kafka's own tools ------------------------------------------------------------------------


def acls(tools: Jvm, broker: Secured, *arguments: str) -> str:
    command = "org.apache.kafka.tools.AclCommand"
    return tools.run(command, "--bootstrap-server", broker.at("PLAINTEXT"), *arguments)


def configs(tools: Jvm, broker: Secured, *arguments: str) -> str:
    command = "kafka.admin.ConfigCommand"
    return tools.run(command, "--bootstrap-server", broker.at("PLAINTEXT"), *arguments)


def test_kafka_acls_adds_lists_and_removes(jvm: Jvm, tools: Jvm, broker: Secured) -> None:
    broker.add_user("gina")
    settings = sasl(broker, "SCRAM-SHA-256", "gina")
    assert java(jvm, broker, settings)["error"] == "TopicAuthorizationException"
    acls(tools, broker, "--add", "--allow-principal", "User:gina", "--producer", "--topic", TOPIC)
    listed = acls(tools, broker, "--list", "--topic", TOPIC, "--principal", "User:gina")
    assert "principal=User:gina, host=*, operation=WRITE, permissionType=ALLOW" in listed
    assert java(jvm, broker, settings)["offset"] >= 0
    prefixed = ("--topic", "guard", "--resource-pattern-type", "prefixed")
    acls(tools, broker, "--add", "--deny-principal", "User:gina", *prefixed)
    assert java(jvm, broker, settings)["error"] == "TopicAuthorizationException"
    acls(tools, broker, "--remove", "--force", *prefixed)
    assert java(jvm, broker, settings)["offset"] >= 0
    acls(tools, broker, "--remove", "--force", "--topic", TOPIC, "--allow-principal", "User:gina",
         "--producer")  # fmt: skip
    assert "gina" not in acls(tools, broker, "--list")


def test_kafka_configs_manages_passwords_and_quotas(jvm: Jvm, tools: Jvm, broker: Secured) -> None:
    who = ("--entity-type", "users", "--entity-name", "hank")
    password = "SCRAM-SHA-512=[iterations=8192,password=open sesame]"
    configs(tools, broker, "--alter", *who, "--add-config", password)
    assert "iterations=8192" in configs(tools, broker, "--describe", *who)
    settings = sasl(broker, "SCRAM-SHA-512", "hank", "open sesame")
    assert java(jvm, broker, settings)["error"] == "TopicAuthorizationException"
    configs(tools, broker, "--alter", *who, "--add-config", "producer_byte_rate=12345")
    assert "producer_byte_rate=12345" in configs(tools, broker, "--describe", *who)
    configs(tools, broker, "--alter", *who, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in configs(tools, broker, "--describe", *who)
    configs(tools, broker, "--alter", *who, "--delete-config", "SCRAM-SHA-512")
    assert_told_nothing(java(jvm, broker, settings))
