"""Table of the top-level commands, grouped by task; each module is imported on demand.

`penstock up` must not wait for the imports of all other commands; only `--help` loads them all.
"""

from importlib import import_module

import click

SECTIONS = {
    "Start": {
        "up": ("penstock.cli.server.up", "up"),
        "node": ("penstock.cli.server.node", "node"),
        "demo": ("penstock.cli.demo.demo", "demo"),
        "doctor": ("penstock.cli.cluster.doctor", "doctor"),
        "cheat": ("penstock.cli.tools.cheat", "cheat"),
    },
    "Data": {
        "topic": ("penstock.cli.data.topics", "topic"),
        "produce": ("penstock.cli.data.produce", "produce"),
        "consume": ("penstock.cli.data.consume", "consume"),
        "replay": ("penstock.cli.data.replay", "replay"),
        "outbox": ("penstock.cli.tools.outbox", "outbox"),
    },
    "Groups": {
        "group": ("penstock.cli.groups.groups", "group"),
        "txn": ("penstock.cli.data.transactions", "txn"),
    },
    "Queues": {
        "queue": ("penstock.cli.queues.queues", "queue"),
        "dlq": ("penstock.cli.queues.dlq", "dlq"),
        "worker": ("penstock.cli.tools.worker", "worker"),
    },
    "Pipelines": {
        "pipeline": ("penstock.cli.spark.pipelines", "pipeline"),
        "job": ("penstock.cli.spark.jobs", "job"),
        "spark": ("penstock.cli.spark.spark", "spark"),
    },
    "Cluster": {
        "cluster": ("penstock.cli.cluster.cluster", "cluster"),
        "config": ("penstock.cli.data.configs", "config"),
        "plan": ("penstock.cli.cluster.capacity_plan", "plan_command"),
    },
    "Security": {
        "user": ("penstock.cli.security.users", "user"),
        "acl": ("penstock.cli.security.acls", "acl"),
        "quota": ("penstock.cli.security.quotas", "quota"),
        "encryption": ("penstock.cli.cluster.encryption", "encryption"),
        "audit": ("penstock.cli.security.audit", "audit"),
    },
    "Tools": {
        "mcp": ("penstock.cli.mcp.command", "mcp"),
        "profile": ("penstock.cli.security.profiles", "profile"),
        "completion": ("penstock.cli.tools.completion", "completion"),
        "generate": ("penstock.cli.tools.generate", "generate"),
        "debug": ("penstock.cli.cluster.debug_bundle", "debug"),
        "bench": ("penstock.cli.data.bench", "bench"),
        "wire": ("penstock.cli.tools.wire", "wire"),
    },
}
"""By section and name: the module, and the command's attribute in it."""

COMMANDS = {name: place for rows in SECTIONS.values() for name, place in rows.items()}


def load(name: str) -> click.Command | None:
    """Imports the command of this name; None if it does not exist."""
    place = COMMANDS.get(name)
    if place is None:
        return None
    module, attribute = place
    command: click.Command = getattr(import_module(module), attribute)
    return command
