"""Consistency of configs with each other, checked before anything is opened.

Valid values of a single config are in its row of `cluster.configs.config_table`.
"""

from penstock.cluster.configs.config_types import InvalidConfig
from penstock.cluster.configs.effective_configs import BrokerConfigs

HEARTBEAT, SESSION = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
BEARER = "OAUTHBEARER"
OF_TOKENS = (
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.expected.audience",
)


def check_together(configs: BrokerConfigs) -> None:
    """Raises InvalidConfig, whose message says which config to change."""
    heartbeat_ms, session_ms = configs.integer(HEARTBEAT), configs.integer(SESSION)
    if heartbeat_ms >= session_ms:
        raise InvalidConfig(
            f"{HEARTBEAT} is {heartbeat_ms} and {SESSION} is {session_ms}: the node would be "
            f"considered dead between two heartbeats; choose a {HEARTBEAT} of at most a third of "
            f"{SESSION}"
        )
    missing = missing_for_tokens(configs)
    is_enabled = BEARER in configs.items("sasl.enabled.mechanisms")
    if missing and (is_enabled or len(missing) < len(OF_TOKENS)):
        # HTTP accepts tokens as soon as their keys are known, whatever SASL listeners accept.
        raise InvalidConfig(
            f"tokens ({BEARER}, Bearer) need {' and '.join(missing)}: otherwise tokens of "
            "other issuers, or for other services, would be accepted (audience * accepts any)"
        )


def missing_for_tokens(configs: BrokerConfigs) -> list[str]:
    """Returns the configs that are missing before any token can be verified."""
    return [name for name in OF_TOKENS if not configs.value(name)]
