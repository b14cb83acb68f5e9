"""Configs that Kafka has, or had, and Penstock has not: why, for whoever brings them along.

Refused like any unknown name, because nobody would obey them; but not as if they were misspelt.
What can be ignored without harm is a row of `config_table` instead, marked as inert.
"""

GONE = "Kafka 4 has it no longer; leave it out"
QUORUM = (
    "there is no KRaft quorum here: a node keeps metadata in its own directory, or in etcd "
    "(see `penstock node --help`); leave it out"
)
TIERED = "there is no tiered storage here; leave it out"
TLS = "TLS is OpenSSL's here, with ssl.enabled.protocols and OpenSSL's own ciphers; leave it out"
LOGIN = (
    "logins are SCRAM, PLAIN and OAUTHBEARER with the configs of the reference; classes and "
    "Kerberos are Java's; leave it out"
)
JAVA = "it names Java classes, which are not run here; leave it out"

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
"""By the name, or, with a dot at the end, the beginning of a name."""


def why_not(name: str) -> str | None:
    """What to tell somebody who sets this; None where the name is not known as Kafka's."""
    for known, why in WHY.items():
        if name.startswith(known) if known.endswith(".") else name == known:
            return f"'{name}' is a config of Kafka's that is not obeyed here: {why}"
    return None
