"""aiokafka and kafka-python over SASL_SSL and with certificates, and refusals."""

import asyncio
import json
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError, KafkaError
from confluent_kafka.admin import AclOperation

from tests.clients.secured import MECHANISMS, PASSWORD, TOPIC, USER, Secured, secured
from tests.run_with import in_new_loop, run_with

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]
TIMEOUT_S = 30
REFUSED = """
import json, sys
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

class Token(AbstractTokenProvider):
    def token(self):
        return sys.argv[2]

settings = json.loads(sys.argv[1])
if sys.argv[2]:
    settings["sasl_oauth_token_provider"] = Token()
try:
    KafkaProducer(**settings)
except KafkaError:
    print("refused")
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


@pytest.fixture
def other_ca(tmp_path: Path) -> str:
    path = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return str(path)


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, broker: Secured, **claims: Any) -> None:
        self._broker = broker
        self._claims = claims

    async def token(self) -> str:
        return self._broker.token(**self._claims)


class PythonToken(PythonTokenProvider):  # type: ignore[misc]
    def __init__(self, broker: Secured, **claims: Any) -> None:
        super().__init__()
        self._broker = broker
        self._claims = claims

    def token(self) -> str:
        return self._broker.token(**self._claims)


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
@run_with(in_new_loop)
async def test_aiokafka_logs_in(*, broker: Secured, mechanism: str) -> None:
    assert await send(**aio(broker, mechanism)) >= 0


@run_with(in_new_loop)
async def test_aiokafka_logs_in_with_a_certificate(*, broker: Secured) -> None:
    context = ssl.create_default_context(cafile=broker.ca_file)
    context.load_cert_chain(broker.certificate("bob"))
    sent = await send(
        bootstrap_servers=broker.at("SSL"), security_protocol="SSL", ssl_context=context
    )
    assert sent >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@run_with(in_new_loop)
async def test_aiokafka_with_a_wrong_password_is_refused(
    *, broker: Secured, mechanism: str
) -> None:
    with pytest.raises((KafkaConnectionError, KafkaError)):
        await send(**aio(broker, mechanism, "wrong"))


def aio_refused(**settings: Any) -> str:
    """Text of the refusal, with its causes."""

    async def go() -> int:
        return await send(**settings)

    with pytest.raises((KafkaConnectionError, KafkaError)) as caught:
        asyncio.run(go())
    return repr(caught.value) + repr(caught.value.__context__)


def test_aiokafka_with_an_expired_token_is_refused(broker: Secured) -> None:
    expired = {"sasl_oauth_token_provider": Token(broker, exp=1_000)}
    aio_refused(**aio(broker, "OAUTHBEARER") | expired)


def test_aiokafka_refuses_an_untrusted_ca(broker: Secured, other_ca: str) -> None:
    context = ssl.create_default_context(cafile=other_ca)
    aio_refused(**aio(broker, "PLAIN") | {"ssl_context": context})


def test_aiokafka_of_a_removed_user_is_refused(broker: Secured) -> None:
    broker.add_user("ivan")
    settings = aio(broker, "SCRAM-SHA-256") | {"sasl_plain_username": "ivan"}
    broker.allow("User:ivan", AclOperation.WRITE)

    async def go() -> int:
        return await send(**settings)

    assert asyncio.run(go()) >= 0
    broker.remove_user("ivan")
    aio_refused(**settings)


# -- kafka-python -----------------------------------------------------------------------------


def python(broker: Secured, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings = {
        "bootstrap_servers": broker.at("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": broker.ca_file,
        "sasl_mechanism": mechanism,
        "bootstrap_timeout_ms": 3_000,
    }
    if mechanism == "OAUTHBEARER":
        return {**settings, "sasl_oauth_token_provider": PythonToken(broker)}
    return {**settings, "sasl_plain_username": USER, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
def test_kafka_python_logs_in(broker: Secured, mechanism: str) -> None:
    producer = KafkaProducer(**python(broker, mechanism))
    try:
        assert producer.send(TOPIC, b"value").get(TIMEOUT_S).offset >= 0
    finally:
        producer.close(TIMEOUT_S)


def test_kafka_python_logs_in_with_a_certificate(broker: Secured) -> None:
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


def python_refused(**settings: Any) -> None:
    """In a process of its own: one that cannot get in leaves its sockets to the collector."""
    provider = settings.pop("sasl_oauth_token_provider", None)
    token = "" if provider is None else provider.token()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REFUSED, json.dumps(settings), token],
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
        check=False,
    )
    assert done.stdout == "refused\n", done.stdout + done.stderr


def test_kafka_python_with_a_wrong_password_is_refused(broker: Secured) -> None:
    python_refused(**python(broker, "SCRAM-SHA-256", "wrong"))


def test_kafka_python_with_an_expired_token_is_refused(broker: Secured) -> None:
    expired = {"sasl_oauth_token_provider": PythonToken(broker, exp=1_000)}
    python_refused(**python(broker, "OAUTHBEARER") | expired)


def test_kafka_python_refuses_an_untrusted_ca(broker: Secured, other_ca: str) -> None:
    python_refused(**python(broker, "PLAIN") | {"ssl_cafile": other_ca})


def test_kafka_python_of_a_removed_user_is_refused(broker: Secured) -> None:
    broker.add_user("judy")
    broker.remove_user("judy")
    python_refused(**python(broker, "SCRAM-SHA-512") | {"sasl_plain_username": "judy"})
