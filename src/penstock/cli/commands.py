"""The commands below `penstock`, each imported when it is asked for.

`penstock up` must not wait for what every other command needs; only `--help` looks at all of them.
"""

from importlib import import_module

import click

COMMANDS = {
    "acl": ("penstock.cli.acls", "acl"),
    "bench": ("penstock.cli.bench", "bench"),
    "cluster": ("penstock.cli.cluster", "cluster"),
    "config": ("penstock.cli.configs", "config"),
    "consume": ("penstock.cli.consume", "consume"),
    "debug": ("penstock.cli.debugging", "debug"),
    "dlq": ("penstock.cli.dlq", "dlq"),
    "doctor": ("penstock.cli.doctor", "doctor"),
    "generate": ("penstock.cli.generate", "generate"),
    "group": ("penstock.cli.groups", "group"),
    "node": ("penstock.cli.node", "node"),
    "outbox": ("penstock.cli.outbox", "outbox"),
    "plan": ("penstock.cli.plan", "plan_command"),
    "produce": ("penstock.cli.produce", "produce"),
    "queue": ("penstock.cli.queues", "queue"),
    "quota": ("penstock.cli.quotas", "quota"),
    "replay": ("penstock.cli.replay", "replay"),
    "topic": ("penstock.cli.topics", "topic"),
    "txn": ("penstock.cli.txns", "txn"),
    "up": ("penstock.cli.up", "up"),
    "user": ("penstock.cli.users", "user"),
    "wire": ("penstock.cli.wire", "wire"),
    "worker": ("penstock.cli.worker", "worker"),
}
"""By name: the module, and what the command is called there."""


def load(name: str) -> click.Command | None:
    """The command of this name, if there is one."""
    place = COMMANDS.get(name)
    if place is None:
        return None
    module, attribute = place
    command: click.Command = getattr(import_module(module), attribute)
    return command
