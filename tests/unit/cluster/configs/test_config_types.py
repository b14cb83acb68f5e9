"""Reading config values: what is taken, what is refused, and in which words."""

import pytest

from penstock.cluster.configs.config_types import (
    COUNTS_BY_ADDRESS,
    GZIP_LEVEL,
    OFFSET_RESET,
    THROTTLED,
    UNLIMITED_OR_POSITIVE,
    Config,
    ConfigType,
    InvalidConfig,
    Limit,
    at_least,
    between,
    counts_by_address,
    items_of,
    one_of,
    one_of_any_case,
    parse,
    show,
)


def config(kind: ConfigType, limit: Limit | None = None) -> Config:
    return Config("some.name", kind, None, limit, "A config.")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, " -5 ", -5),
        (ConfigType.INT, "+7", 7),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (ConfigType.LIST, "a, b ,c", ("a", "b", "c")),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.STRING, " x ", "x"),
        (ConfigType.PASSWORD, " x ", " x "),
    ],
)
def test_config_text_is_parsed_by_type(kind: ConfigType, text: str, value: object) -> None:
    assert parse(config(kind), text) == value


def test_missing_text_is_parsed_as_none() -> None:
    assert parse(config(ConfigType.INT, at_least(5)), None) is None


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.INT, "many", "Not a number of type INT"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.INT, "\u0661", "Not a number of type INT"),
        (ConfigType.INT, "9" * 5000, "Not a number of type INT"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.LONG, "-9223372036854775809", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "half", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "nan", "Not a number of type DOUBLE"),
    ],
)
def test_text_of_another_type_is_refused(kind: ConfigType, text: str, wrong: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse(config(kind), text)
    assert str(refused.value) == f"Invalid value {text} for configuration some.name: {wrong}"


@pytest.mark.parametrize(
    ("kind", "limit", "good", "bad", "wrong"),
    [
        (ConfigType.INT, at_least(1), "1", "0", "Value must be at least 1"),
        (ConfigType.DOUBLE, between(0, 1), "1", "1.1", "Value must be no more than 1"),
        (ConfigType.DOUBLE, between(0, 1), "0", "-0.1", "Value must be at least 0"),
        (ConfigType.STRING, one_of("a", "b"), "b", "c", "String must be one of: a, b"),
        (
            ConfigType.STRING,
            one_of_any_case("up", "down"),
            "UP",
            "left",
            "String must be one of (case insensitive): up, down",
        ),
        (ConfigType.LIST, items_of("a", "b"), "b,a", "a,c", "String must be one of: a, b"),
        (ConfigType.LIST, items_of("a", "b"), "", "a,a", "Duplicate entries are not allowed"),
        (
            ConfigType.INT,
            GZIP_LEVEL,
            "-1",
            "0",
            "Value must be between 1 and 9 or equal to -1",
        ),
        (
            ConfigType.LONG,
            UNLIMITED_OR_POSITIVE,
            "-1",
            "0",
            "must be unlimited (-1) or, equal or greater than 1",
        ),
    ],
)
def test_config_limits_are_enforced(
    kind: ConfigType, limit: Limit, good: str, bad: str, wrong: str
) -> None:
    parse(config(kind, limit), good)
    with pytest.raises(InvalidConfig, match=r"for configuration some\.name") as refused:
        parse(config(kind, limit), bad)
    assert str(refused.value).endswith(wrong)


@pytest.mark.parametrize("text", ["*", "", "0:1", "0:1,12:3"])
def test_throttled_replicas_accepts_pairs_or_a_star(text: str) -> None:
    parse(config(ConfigType.LIST, THROTTLED), text)


def test_counts_by_address_are_parsed() -> None:
    assert counts_by_address("") == {}
    assert counts_by_address("10.0.0.7:200, ::1:5,[::2]:0") == {
        "10.0.0.7": 200,
        "::1": 5,
        "::2": 0,
    }


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:", "10.0.0.7:-1", "host:3", ":3", "a:b:c"])
def test_invalid_counts_by_address_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="address:count"):
        parse(config(ConfigType.STRING, COUNTS_BY_ADDRESS), text)


@pytest.mark.parametrize("text", ["0", "0:", ":1", "a:b", "*,0:1"])
def test_invalid_throttled_replicas_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse(config(ConfigType.LIST, THROTTLED), text)


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("earliest", True),
        ("latest", True),
        ("by_duration:PT1H", True),
        ("newest", False),
        ("by_duration:soon", False),
    ],
)
def test_offset_reset_accepts_a_strategy_or_a_duration(text: str, is_right: bool) -> None:
    if is_right:
        assert parse(config(ConfigType.STRING, OFFSET_RESET), text) == text
    else:
        with pytest.raises(InvalidConfig):
            parse(config(ConfigType.STRING, OFFSET_RESET), text)


def test_refusal_does_not_repeat_a_secret() -> None:
    secret = config(ConfigType.PASSWORD, one_of("right"))
    with pytest.raises(InvalidConfig) as refused:
        parse(secret, "hunter2")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), (True, "true"), (False, "false"), (("a", "b"), "a,b"), (5, "5"), (0.5, "0.5")],
)
def test_values_are_shown_as_in_kafka(value: object, text: str | None) -> None:
    assert show(value) == text  # type: ignore[arg-type]


def test_inert_config_is_described_as_without_effect() -> None:
    inert = Config("n", ConfigType.INT, "1", None, "Threads.", is_inert=True)
    assert "no effect" in inert.description
    assert config(ConfigType.INT).description == "A config."
