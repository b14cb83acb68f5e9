"""Options: known names, refused typos, one meaning each."""

import pytest

from penstock.spark.option_values import OptionError
from penstock.spark.options import BOTH, IGNORED, OPTIONS, READ, SECURITY, WRITE, read_options

HERE = {"kafka.bootstrap.servers": "localhost:9092"}


def test_names_are_taken_in_any_case_and_by_their_aliases() -> None:
    found = read_options({"BOOTSTRAP.servers": "a:1", "startingoffsets": "earliest"}, READ)
    assert found["kafka.bootstrap.servers"] == "a:1"
    assert found["startingOffsets"] == "earliest"


def test_every_option_has_a_value_or_its_default() -> None:
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
def test_a_typo_is_refused_with_the_nearest_right_name(typo: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"did you mean '{meant}'"):
        read_options({**HERE, typo: "1"}, READ)


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(OptionError, match=r"unknown option 'xyzzy': the options are listed"):
        read_options({**HERE, "xyzzy": "1"}, READ)


def test_an_option_of_the_other_side_is_refused() -> None:
    with pytest.raises(OptionError, match="for writes"):
        read_options({**HERE, "delivery": "exactly-once"}, READ)
    with pytest.raises(OptionError, match="for reads"):
        read_options({**HERE, "subscribe": "t"}, WRITE)


def test_an_option_given_by_two_names_is_refused() -> None:
    with pytest.raises(OptionError, match="given twice"):
        read_options({**HERE, "brokers": "b:1"}, READ)


def test_brokers_must_be_given() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers' is missing"):
        read_options({"subscribe": "t"}, READ)


def test_tls_and_sasl_are_taken_by_the_names_of_kafkas_clients() -> None:
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
    ("name", "why"),
    [
        ("kafka.sasl.pasword", "did you mean 'kafka.sasl.password'"),
        ("kafka.ssl.truststore.password", "only PEM files are read"),
    ],
)
def test_a_secret_is_never_told(name: str, why: str) -> None:
    with pytest.raises(OptionError, match=why) as caught:
        read_options({**HERE, name: "hunter2"}, READ)
    assert "hunter2" not in str(caught.value)
    twice = {**HERE, "kafka.sasl.password": "hunter2", "sasl.password": "hunter2"}
    with pytest.raises(OptionError, match="given twice") as caught:
        read_options(twice, READ)
    assert "hunter2" not in str(caught.value)


def test_what_only_a_kafka_client_needs_is_accepted() -> None:
    read_options({**HERE, "kafka.session.timeout.ms": "1", "checkpointLocation": "/x"}, READ)
    assert not {name for name in IGNORED if name != name.lower()}
    spellings = {n.lower() for o in OPTIONS for n in (o.name, *o.aliases)}
    assert not spellings & IGNORED
