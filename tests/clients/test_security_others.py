"""aiokafka, kafka-python and the Java client over SASL_SSL and with certificates."""

import asyncio
import gc
import json
import ssl
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError, KafkaError

from tests.clients.javas import Jvm
from tests.clients.secured import MECHANISMS, PASSWORD, TOPIC, USER, Secured, secured

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as PythonKafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # A kafka-python producer that cannot get in leaves its sockets to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, broker: Secured) -> None:
        self._broker = broker

    async def token(self) -> str:
        return self._broker.token()


class PythonToken(PythonTokenProvider):  # type: ignore[misc]
    def __init__(self, broker: Secured) -> None:
        super().__init__()
        self._broker = broker

    def token(self) -> str:
        return self._broker.token()


# -- aiokafka ---------------------------------------------------------------------------------


async def send(**settings: Any) -> int:
    producer = AIOKafkaProducer(request_timeout_ms=TIMEOUT_S * 1000, **settings)
    try:
        await producer.start()
        sent = await producer.send_and_wait(TOPIC, b"value")
        offset: int = sent.offset
        return offset
    finally:
        await producer.stop()


def aio(broker: Secured, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings = {
        "bootstrap_servers": broker.at("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=broker.ca_file),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**settings, "sasl_oauth_token_provider": Token(broker)}
    return {**settings, "sasl_plain_username": USER, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
def test_aiokafka_gets_in(broker: Secured, mechanism: str) -> None:
    async def go() -> int:
        return await send(**aio(broker, mechanism))

    assert asyncio.run(go()) >= 0


def test_aiokafka_with_a_certificate(broker: Secured) -> None:
    context = ssl.create_default_context(cafile=broker.ca_file)
    context.load_cert_chain(broker.certificate("bob"))

    async def go() -> int:
        return await send(
            bootstrap_servers=broker.at("SSL"), security_protocol="SSL", ssl_context=context
        )

    assert asyncio.run(go()) >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_with_a_wrong_password_is_refused(broker: Secured, mechanism: str) -> None:
    async def go() -> int:
        return await send(**aio(broker, mechanism, "wrong"))

    with pytest.raises((KafkaConnectionError, KafkaError)):
        asyncio.run(go())


# -- kafka-python -----------------------------------------------------------------------------


def python(broker: Secured, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings = {
        "bootstrap_servers": broker.at("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": broker.ca_file,
        "sasl_mechanism": mechanism,
        "bootstrap_timeout_ms": 5_000,
    }
    if mechanism == "OAUTHBEARER":
        return {**settings, "sasl_oauth_token_provider": PythonToken(broker)}
    return {**settings, "sasl_plain_username": USER, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
def test_kafka_python_gets_in(broker: Secured, mechanism: str) -> None:
    producer = KafkaProducer(**python(broker, mechanism))
    try:
        assert producer.send(TOPIC, b"value").get(TIMEOUT_S).offset >= 0
    finally:
        producer.close(TIMEOUT_S)


def test_kafka_python_with_a_certificate(broker: Secured) -> None:
    pem = broker.certificate("bob")
    producer = KafkaProducer(
        bootstrap_servers=broker.at("SSL"),
        security_protocol="SSL",
        ssl_cafile=broker.ca_file,
        ssl_certfile=pem,
        ssl_keyfile=pem,
    )
    try:
        assert producer.send(TOPIC, b"value").get(TIMEOUT_S).offset >= 0
    finally:
        producer.close(TIMEOUT_S)


def test_kafka_python_with_a_wrong_password_is_refused(broker: Secured) -> None:
    is_refused = False
    try:
        KafkaProducer(**python(broker, "SCRAM-SHA-256", "wrong"))
    except PythonKafkaError:
        is_refused = True
    assert is_refused
    # What it leaves to the collector is collected here, where that is expected.
    gc.collect()


# -- Java -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    started = Jvm()
    yield started
    started.close()


def java(jvm: Jvm, broker: Secured, **settings: str) -> dict[str, Any]:
    """What the Java producer says to one record."""
    path = broker.directory / "java.properties"
    base = {"ssl.truststore.type": "PEM", "ssl.truststore.location": broker.ca_file}
    lines = {name.replace("_", "."): value for name, value in settings.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in (base | lines).items()))
    said = jvm.run("penstock.clients.Secured", str(path), TOPIC)
    found = [line for line in said.splitlines() if line.startswith("{")]
    assert found, said
    answer: dict[str, Any] = json.loads(found[-1])
    return answer


def jaas(mechanism: str, password: str) -> str:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    module = f"org.apache.kafka.common.security.{kind}LoginModule"
    return f'{module} required username="{USER}" password="{password}";'


@pytest.mark.java
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_gets_in_and_not_with_a_wrong_password(
    jvm: Jvm, broker: Secured, mechanism: str
) -> None:
    settings = {
        "bootstrap_servers": broker.at("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
    }
    answer = java(jvm, broker, **settings, sasl_jaas_config=jaas(mechanism, PASSWORD))
    assert answer["offset"] >= 0
    answer = java(jvm, broker, **settings, sasl_jaas_config=jaas(mechanism, "wrong"))
    assert answer["error"] == "SaslAuthenticationException"


@pytest.mark.java
def test_java_with_a_certificate(jvm: Jvm, broker: Secured) -> None:
    answer = java(
        jvm,
        broker,
        bootstrap_servers=broker.at("SSL"),
        security_protocol="SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=pkcs8(broker),
    )
    assert answer["offset"] >= 0


def pkcs8(broker: Secured) -> str:
    """Java reads private keys as PKCS#8 only."""
    from cryptography.hazmat.primitives import serialization

    text = broker.certificate("bob")
    path = broker.directory / "bob-pkcs8.pem"
    with open(text, "rb") as file:
        pem = file.read()
    key = serialization.load_pem_private_key(pem, None)
    shown = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(shown + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return str(path)
