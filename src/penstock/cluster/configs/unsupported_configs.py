"""Configs that Kafka has, or had, and Penstock does not support, with the reason.

They are refused like any unknown name, because they would have no effect; but not as misspelt. What
can be ignored without harm is a row of `config_table` instead, marked as inert.
"""

GONE = "Kafka 4 no longer has it; remove it"
QUORUM = (
    "Penstock has no KRaft quorum: a node keeps metadata in its own directory, or in etcd (see "
    "`penstock node --help`); remove it"
)
TIERED = "Penstock has no tiered storage; remove it"
TLS = "Penstock's TLS is OpenSSL's, with ssl.enabled.protocols and OpenSSL's ciphers; remove it"
LOGIN = (
    "Penstock authenticates with SCRAM, PLAIN and OAUTHBEARER, configured as in the reference; "
    "login classes and Kerberos belong to Java; remove it"
)
JAVA = "it names Java classes, which Penstock does not run; remove it"

WHY = {
    "zookeeper.": GONE,
    "control.plane.listener.name": GONE,
    "inter.broker.protocol.version": GONE,
    "log.message.downconversion.enable": GONE,
    "log.message.format.version": GONE,
    "log.message.timestamp.difference.max.ms": GONE,
    "message.downconversion.enable": GONE,
    "message.format.version": GONE,
    "message.timestamp.difference.max.ms": GONE,
    "controller.quorum.": QUORUM,
    "controller.quota.": QUORUM,
    "early.start.listeners": QUORUM,
    "metadata.log.": QUORUM,
    "metadata.max.retention.": QUORUM,
    "follower.fetch.last.tiered.offset.enable": TIERED,
    "remote.": TIERED,
    "rlmm.config.": TIERED,
    "rsm.config.": TIERED,
    "ssl.": TLS,
    "sasl.": LOGIN,
    "config.providers": JAVA,
    "kafka.metrics.": JAVA,
    "security.providers": JAVA,
}
"""Reasons by name or, with a dot at the end, by prefix."""


def why_not(name: str) -> str | None:
    """Returns the reason for the user; None if the name is not known as Kafka's."""
    for known, why in WHY.items():
        if name.startswith(known) if known.endswith(".") else name == known:
            return f"'{name}' is a Kafka config that Penstock does not support: {why}"
    return None
