"""Configs that make no sense together keep a node from starting."""

import pytest

from penstock.cluster.configs.config_types import InvalidConfig
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.node.config_consistency import check_together

TOKENS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://id.example.com/keys",
    "sasl.oauthbearer.expected.issuer": "https://id.example.com",
    "sasl.oauthbearer.expected.audience": "penstock",
}


def test_defaults_are_consistent() -> None:
    check_together(BrokerConfigs())
    check_together(BrokerConfigs(TOKENS))


@pytest.mark.parametrize("heartbeat_ms", ["6000", "7000"])
def test_heartbeat_interval_near_the_session_timeout_is_refused(heartbeat_ms: str) -> None:
    configs = BrokerConfigs({"broker.heartbeat.interval.ms": heartbeat_ms})
    with pytest.raises(InvalidConfig, match=r"considered dead .* at most a third"):
        check_together(configs)


@pytest.mark.parametrize("missing", [name for name in TOKENS if "oauthbearer" in name])
def test_tokens_need_an_issuer_and_an_audience(missing: str) -> None:
    given = {name: value for name, value in TOKENS.items() if name != missing}
    with pytest.raises(InvalidConfig, match=missing.replace(".", r"\.")):
        check_together(BrokerConfigs(given))
    # HTTP takes tokens, too, and knows nothing of mechanisms.
    del given["sasl.enabled.mechanisms"]
    with pytest.raises(InvalidConfig, match=missing.replace(".", r"\.")):
        check_together(BrokerConfigs(given))
