"""`penstock acl`: lists, adds and removes ACLs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat, format_option, print_listing
from penstock.cli.terminal.session import CommandSession, brokers_option, run
from penstock.security.acl_types import (
    ALL_OPERATIONS,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    ResourceType,
)
from penstock.security.acls import AclEntry, Filter, Resource

CLUSTER = "kafka-cluster"
RESOURCES = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
RESOURCES |= {"transactional-id": ResourceType.TRANSACTIONAL_ID}
OPERATIONS = {one.name.lower().replace("_", "-"): int(one) for one in Operation}
OPERATIONS["all"] = ALL_OPERATIONS
OPERATION_NAMES = {number: name for name, number in OPERATIONS.items()}
RESOURCE_NAMES = {int(one): one.name.lower().replace("_", "-") for one in ResourceType}
REDRIVER = "redriver"
# Operations that a producer, a consumer or a redriver needs.
ROLES: dict[str, dict[ResourceType, tuple[str, ...]]] = {
    "producer": {ResourceType.TOPIC: ("write", "describe", "create")},
    "consumer": {ResourceType.TOPIC: ("read", "describe"), ResourceType.GROUP: ("read",)},
    REDRIVER: {ResourceType.TOPIC: ("read", "describe")},
}

Command = Callable[..., Any]


def _resource_options(command: Command) -> Command:
    options = (
        click.option("--topic", "topics", multiple=True, help="A topic; * for all; repeatable."),
        click.option("--group", "groups", multiple=True, help="A group; repeatable."),
        click.option(
            "--transactional-id", "txns", multiple=True, help="A transactional id; repeatable."
        ),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option("--prefix", is_flag=True, help="Treat names as prefixes."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(
    "acl", no_args_is_help=True, short_help="Manage ACLs: permissions of users on resources."
)
def acl() -> None:
    """Manage permissions on topics, groups, transactional ids and the cluster.

    Brokers enforce ACLs if they run with `--set authorizer.class.name=acl`.
    """


@acl.command("list")
@click.option("--principal", help="Only this principal, e.g. User:alice.")
@_resource_options
@brokers_option
@format_option
def list_command(principal: str | None, brokers: str, format: OutputFormat, **named: Any) -> None:
    """List ACLs.

    \b
    penstock acl list
    penstock acl list --topic orders
    """
    wanted = [
        Filter(resource.type, resource.name, Pattern.MATCH, _principal(principal))
        for resource in _resources(**named)
    ] or [Filter(principal=_principal(principal))]

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import AccessAdmin

        access = AccessAdmin(session.cluster)
        found = [binding for one in wanted for binding in await access.bindings(one)]
        _show(list(dict.fromkeys(found)), format)

    run(brokers, work)


def _adding(permission: Permission, verb: str, example: str) -> click.Command:
    @click.command(verb, help=f"{verb.capitalize()} operations for a principal.\n\n\b\n{example}")
    @click.argument("principal", help="User:alice or alice; User:* is every principal.")
    @click.argument(
        "operations",
        nargs=-1,
        type=click.Choice([*OPERATIONS, *ROLES]),
        help="Operations, or a role that stands for several.",
    )
    @click.option("--host", default=WILDCARD, show_default=True, help="Client address.")
    @_resource_options
    @brokers_option
    def command(
        principal: str, operations: tuple[str, ...], host: str, brokers: str, **named: Any
    ) -> None:
        resources = _resources(**named)
        if not resources or not operations:
            raise UserError("missing operation or resource; write e.g. `read --topic orders`")
        bindings = [
            (resource, AclEntry(_principal(principal) or "", host, number, permission))
            for resource in resources
            for number in _numbers(resource, operations)
        ]
        if REDRIVER in operations:
            who = _principal(principal) or ""
            bindings += [
                (beside, AclEntry(who, host, OPERATIONS[word], permission))
                for beside, word in _of_redriver(resources)
            ]
        if not bindings:
            raise UserError("these operations do not apply to these resources")

        async def work(session: CommandSession) -> None:
            from penstock.client.admin.access import AccessAdmin

            await AccessAdmin(session.cluster).add(bindings)
            _show(bindings, OutputFormat.text)

        run(brokers, work)

    return command


acl.add_command(
    _adding(
        Permission.ALLOW,
        "allow",
        "penstock acl allow alice consumer --topic orders --group billing\n"
        "penstock acl allow User:etl write create --topic etl- --prefix",
    )
)
acl.add_command(_adding(Permission.DENY, "deny", "penstock acl deny alice read --topic payroll"))


@acl.command("remove")
@click.option("--principal", help="Only this principal, e.g. User:alice.")
@_resource_options
@yes_option
@brokers_option
def remove_command(principal: str | None, yes: bool, brokers: str, **named: Any) -> None:
    """Remove ACLs of a principal, of a resource, or of both.

    \b
    penstock acl remove --principal alice --topic orders
    """
    resources = _resources(**named)
    if not resources and principal is None:
        raise UserError("nothing selected: pass --principal, a resource, or both")
    wanted = [
        Filter(resource.type, resource.name, resource.pattern, _principal(principal))
        for resource in resources
    ] or [Filter(principal=_principal(principal))]

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.access import AccessAdmin

        access = AccessAdmin(session.cluster)
        found = [binding for one in wanted for binding in await access.bindings(one)]
        if not found:
            raise UserError("no ACL matches; see `penstock acl list`")
        _show(found, OutputFormat.text)
        confirm(f"Remove these {len(found)} ACLs?", yes)
        removed = [binding for one in wanted for binding in await access.remove(one)]
        print(f"removed {len(removed)} ACLs")

    run(brokers, work)


def _principal(text: str | None) -> str | None:
    return text if text is None or ":" in text else f"User:{text}"


def _resources(
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    txns: tuple[str, ...],
    cluster: bool,
    prefix: bool,
) -> list[Resource]:
    pattern = Pattern.PREFIXED if prefix else Pattern.LITERAL
    found = [
        Resource(kind, name, Pattern.LITERAL if name == WILDCARD else pattern)
        for kind, names in zip(RESOURCES.values(), (topics, groups, txns), strict=True)
        for name in names
    ]
    if cluster:
        found.append(Resource(ResourceType.CLUSTER, CLUSTER))
    return found


def _numbers(resource: Resource, operations: tuple[str, ...]) -> list[int]:
    """Returns the operations that the words mean for a resource; roles skip some resources."""
    numbers: dict[int, None] = {}
    for word in operations:
        role = ROLES.get(word)
        words = (word,) if role is None else role.get(ResourceType(resource.type), ())
        numbers |= dict.fromkeys(OPERATIONS[each] for each in words)
    return list(numbers)


def _of_redriver(topics: list[Resource]) -> list[tuple[Resource, str]]:
    """Returns the further permissions of a redrive: cursor, dead-letter group and history topic."""
    from penstock.client.dead_letters.open_messages import CURSOR_PREFIX, DEAD_LETTERS, cursor_group
    from penstock.client.dead_letters.redrive import AUDIT

    audit = Resource(ResourceType.TOPIC, AUDIT)
    found = [(Resource(ResourceType.GROUP, DEAD_LETTERS), "read")]
    found += [(audit, "write"), (audit, "create")]
    for one in topics:
        if one.type == ResourceType.TOPIC:
            is_any = one.name == WILDCARD
            name = CURSOR_PREFIX if is_any else cursor_group(one.name)
            pattern = Pattern.PREFIXED if is_any else one.pattern
            found.append((Resource(ResourceType.GROUP, name, pattern), "read"))
            found.append((Resource(ResourceType.TRANSACTIONAL_ID, name, pattern), "write"))
    return found


def _show(bindings: list[tuple[Resource, AclEntry]], format: OutputFormat) -> None:
    rows = [
        {
            "resource": RESOURCE_NAMES.get(resource.type, str(resource.type)),
            "name": resource.name,
            "pattern": Pattern(resource.pattern).name.lower(),
            "principal": entry.principal,
            "host": entry.host,
            "operation": OPERATION_NAMES.get(entry.operation, str(entry.operation)),
            "permission": Permission(entry.permission).name.lower(),
        }
        for resource, entry in bindings
    ]
    columns = ("permission", "principal", "operation", "resource", "name", "pattern", "host")
    print_listing(format, rows, columns, [[row[column] for column in columns] for row in rows])
