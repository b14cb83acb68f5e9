"""Options: known names, aliases, defaults, and refused names."""

import pytest

from penstock.spark.option_values import OptionError
from penstock.spark.settings import BOTH, IGNORED, OPTIONS, READ, SECURITY, WRITE, read_options

HERE = {"kafka.bootstrap.servers": "localhost:9092"}


def test_option_names_ignore_case_and_have_aliases() -> None:
    found = read_options({"BOOTSTRAP.servers": "a:1", "startingoffsets": "earliest"}, READ)
    assert found["kafka.bootstrap.servers"] == "a:1"
    assert found["startingOffsets"] == "earliest"


def test_missing_options_get_their_defaults() -> None:
    found = read_options(HERE, READ)
    assert set(found) == {SECURITY, *(o.name for o in OPTIONS if o.side in (READ, BOTH))}
    assert found["failOnDataLoss"] is True
    assert found["fetchBytes"] == 4 << 20
    assert found["subscribe"] is None


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("startingOfset", "startingOffsets"),
        ("failOnDatLoss", "failOnDataLoss"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("includeheader", "includeHeaders"),
    ],
)
def test_mistyped_option_is_refused_with_a_suggestion(typo: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"did you mean '{meant}'"):
        read_options({**HERE, typo: "1"}, READ)


def test_unknown_option_is_refused_without_a_suggestion() -> None:
    with pytest.raises(OptionError, match=r"'xyzzy': the options are listed"):
        read_options({**HERE, "xyzzy": "1"}, READ)


def test_option_of_the_other_side_is_refused() -> None:
    with pytest.raises(OptionError, match="applies to a write"):
        read_options({**HERE, "delivery": "exactly-once"}, READ)
    with pytest.raises(OptionError, match="applies to a read"):
        read_options({**HERE, "subscribe": "t"}, WRITE)


def test_option_given_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="given twice"):
        read_options({**HERE, "brokers": "b:1"}, READ)


def test_missing_brokers_are_refused() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers'"):
        read_options({"subscribe": "t"}, READ)


def test_tls_and_sasl_options_use_kafkas_names() -> None:
    given = {
        **HERE,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanisms": "PLAIN",
        "kafka.ssl.truststore.location": "/ca.pem",
    }
    assert read_options(given, READ)[SECURITY] == (
        ("sasl.mechanism", "PLAIN"),
        ("security.protocol", "SASL_SSL"),
        ("ssl.truststore.location", "/ca.pem"),
    )
    assert read_options(HERE, WRITE)[SECURITY] == ()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("kafka.sasl.pasword", "did you mean 'kafka.sasl.password'"),
        ("kafka.ssl.truststore.password", "PEM"),
    ],
)
def test_errors_hide_secrets(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=hint) as caught:
        read_options({**HERE, name: "hunter2"}, READ)
    assert "hunter2" not in str(caught.value)
    twice = {**HERE, "kafka.sasl.password": "hunter2", "sasl.password": "hunter2"}
    with pytest.raises(OptionError, match="given twice") as caught:
        read_options(twice, READ)
    assert "hunter2" not in str(caught.value)


def test_kafka_client_options_are_ignored() -> None:
    read_options({**HERE, "kafka.session.timeout.ms": "1", "checkpointLocation": "/x"}, READ)
    assert not {name for name in IGNORED if name != name.lower()}
    spellings = {n.lower() for o in OPTIONS for n in (o.name, *o.aliases)}
    assert not spellings & IGNORED
