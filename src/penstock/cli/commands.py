"""The commands below `penstock`, by what people want to do, each imported when it is asked for.

`penstock up` must not wait for what every other command needs; only `--help` looks at all of them.
"""

from importlib import import_module

import click

SECTIONS = {
    "Start": {
        "up": ("penstock.cli.up", "up"),
        "node": ("penstock.cli.node", "node"),
        "doctor": ("penstock.cli.doctor", "doctor"),
        "cheat": ("penstock.cli.cheat", "cheat"),
    },
    "Data": {
        "topic": ("penstock.cli.topics", "topic"),
        "produce": ("penstock.cli.produce", "produce"),
        "consume": ("penstock.cli.consume", "consume"),
        "replay": ("penstock.cli.replay", "replay"),
        "outbox": ("penstock.cli.outbox", "outbox"),
    },
    "Groups": {
        "group": ("penstock.cli.groups", "group"),
        "txn": ("penstock.cli.txns", "txn"),
    },
    "Queues": {
        "queue": ("penstock.cli.queues", "queue"),
        "dlq": ("penstock.cli.dlq", "dlq"),
        "worker": ("penstock.cli.worker", "worker"),
    },
    "Pipelines": {
        "pipeline": ("penstock.cli.pipelines", "pipeline"),
        "job": ("penstock.cli.jobs", "job"),
    },
    "Cluster": {
        "cluster": ("penstock.cli.cluster", "cluster"),
        "config": ("penstock.cli.configs", "config"),
        "plan": ("penstock.cli.plan", "plan_command"),
    },
    "Security": {
        "user": ("penstock.cli.users", "user"),
        "acl": ("penstock.cli.acls", "acl"),
        "quota": ("penstock.cli.quotas", "quota"),
        "encryption": ("penstock.cli.encryption", "encryption"),
        "audit": ("penstock.cli.audit", "audit"),
    },
    "Tools": {
        "profile": ("penstock.cli.profiles", "profile"),
        "completion": ("penstock.cli.completion", "completion"),
        "generate": ("penstock.cli.generate", "generate"),
        "debug": ("penstock.cli.debugging", "debug"),
        "bench": ("penstock.cli.bench", "bench"),
        "wire": ("penstock.cli.wire", "wire"),
    },
}
"""By name: the module, and what the command is called there."""

COMMANDS = {name: place for rows in SECTIONS.values() for name, place in rows.items()}


def load(name: str) -> click.Command | None:
    """The command of this name, if there is one."""
    place = COMMANDS.get(name)
    if place is None:
        return None
    module, attribute = place
    command: click.Command = getattr(import_module(module), attribute)
    return command
