"""Configs that make no sense together: found before anything is opened, and said in full.

What a config may be on its own, its row in `cluster.configs.config_table` says.
"""

from penstock.cluster.configs.config_types import InvalidConfig
from penstock.cluster.configs.configs import BrokerConfigs

HEARTBEAT, SESSION = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
BEARER = "OAUTHBEARER"
OF_TOKENS = (
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.expected.audience",
)


def check_together(configs: BrokerConfigs) -> None:
    """Raises InvalidConfig, saying what to change."""
    heartbeat_ms, session_ms = configs.integer(HEARTBEAT), configs.integer(SESSION)
    if heartbeat_ms >= session_ms:
        raise InvalidConfig(
            f"{HEARTBEAT} is {heartbeat_ms} and {SESSION} is {session_ms}: the node would be taken "
            f"for dead between two heartbeats; choose a {HEARTBEAT} of at most a third of {SESSION}"
        )
    missing = missing_for_tokens(configs)
    is_enabled = BEARER in configs.items("sasl.enabled.mechanisms")
    if missing and (is_enabled or len(missing) < len(OF_TOKENS)):
        # HTTP takes tokens as soon as their keys are known, whatever SASL listeners take.
        raise InvalidConfig(
            f"tokens ({BEARER}, Bearer) need {' and '.join(missing)}: without, those that were "
            "issued to others, or for others, would be let in (an audience of * takes any)"
        )


def missing_for_tokens(configs: BrokerConfigs) -> list[str]:
    """What would have to be set before any token is looked at."""
    return [name for name in OF_TOKENS if not configs.value(name)]
