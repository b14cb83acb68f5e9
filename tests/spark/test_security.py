"""TLS and SASL, with the names that users of Spark's Kafka source know, and no secret told."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme

from tests.clients.secured import PASSWORD, USER, Secured, secured
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="{USER}" password="{PASSWORD}";'
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    users = f"User:ANONYMOUS;User:{USER}"
    with secured(tmp_path_factory.mktemp("secured"), **{"super.users": users}) as found:
        yield found


@pytest.fixture
def theirs(guarded: Secured) -> Iterator[Topics]:
    import asyncio

    loop = asyncio.new_event_loop()
    helper = Topics(loop, guarded.at("PLAINTEXT"))
    yield helper
    helper.close()
    loop.close()


def options(guarded: Secured, jaas: str = JAAS) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": guarded.at("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.location": guarded.ca_file,
        "kafka.ssl.truststore.type": "PEM",
    }


def test_a_stream_reads_and_writes_exactly_once_over_sasl_ssl(
    spark: Any,
    guarded: Secured,
    theirs: Topics,
    topic: str,
    run_stream: Callable[..., Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = f"{topic}-out"
    theirs.create(out)
    theirs.numbers(topic, 50)
    reader = spark.readStream.format("penstock").options(**options(guarded))
    frame = reader.options(subscribe=topic, startingOffsets="earliest").load()
    query = run_stream(frame.select("value"), topic=out, **options(guarded))
    assert theirs.values(out) == list(range(50))
    query.explain(True)
    assert PASSWORD not in capfd.readouterr().out
    assert PASSWORD not in str(query.lastProgress)


def test_a_wrong_password_is_told_and_not_shown(spark: Any, guarded: Secured, topic: str) -> None:
    wrong = options(guarded, JAAS.replace(PASSWORD, "wrong horse"))
    reader = spark.read.format("penstock").options(subscribe=topic, **wrong)
    with pytest.raises(Exception, match="does not let us in") as caught:
        reader.load().collect()
    assert "wrong horse" not in str(caught.value)


def test_a_certificate_that_is_not_trusted_is_told_at_once(
    spark: Any, guarded: Secured, topic: str, tmp_path: Any
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    wrong = {**options(guarded), "kafka.ssl.truststore.location": str(other)}
    reader = spark.read.format("penstock").options(subscribe=topic, **wrong)
    with pytest.raises(Exception, match="is not trusted"):
        reader.load().collect()
