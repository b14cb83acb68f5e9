"""Public names and numbers: APIs, metrics, configs, routes, actions, commands, enums.

Prose beside them (help texts, descriptions) is not pinned.
"""

import json
from collections.abc import Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Any, Final

import click
import msgspec
import pytest

from penstock.app import dedup
from penstock.base.errors import ErrorCode
from penstock.broker.api.metrics import Metrics
from penstock.broker.api.routes import ROUTES
from penstock.cli.main import app
from penstock.client.share import acknowledgements
from penstock.cluster.configs import config_changes, config_types
from penstock.cluster.configs.config_table import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from penstock.coordinator import groups_by_topic
from penstock.coordinator.queues import admin, settle, state_store
from penstock.gateway.app import PAGES
from penstock.gateway.console.mount import ROWS as CONSOLE_ROWS
from penstock.gateway.http.metrics import sample_name
from penstock.gateway.registry.route_table import PAGES as REGISTRY_PAGES
from penstock.gateway.registry.route_table import ROWS as REGISTRY_ROWS
from penstock.gateway.rest.permissions import ACTIONS, SNS_ACTIONS
from penstock.gateway.rest.route_table import ENDPOINTS
from penstock.node.listeners import Protocol
from penstock.node.metrics.node_metrics import observe
from penstock.security.acl_types import Operation, Pattern, Permission, ResourceType
from penstock.security.quotas import EntityType, QuotaKind
from penstock.state.queues.inspection import RunState
from penstock.state.queues.policy import Order
from penstock.state.registry.errors import RegistryErrorCode
from penstock.wire.compression import Codec
from tests.golden.book import Book, Sample

NAMED: Final[dict[str, type[Enum]]] = {
    "error codes": ErrorCode,
    "operations": Operation,
    "resource types": ResourceType,
    "patterns": Pattern,
    "permissions": Permission,
}
"""Their members' names are shown, and read."""
VALUED: Final[dict[str, type[Enum]]] = {
    "config types": config_types.ConfigType,
    "config sources": config_types.ConfigSource,
    "config operations": config_changes.Op,
    "codecs": Codec,
    "quotas": QuotaKind,
    "quota entities": EntityType,
    "listener protocols": Protocol,
    "registry errors": RegistryErrorCode,
    "queue orders": Order,
    "states of runs": RunState,
    "calls that keep a queue": state_store.StateRequestKind,
    "changes of queues": admin.ChangeKind,
    "kinds of positions": groups_by_topic.PositionKind,
    "rulings on leases": settle.SettleAction,
    "acknowledgements": acknowledgements.AcknowledgementType,
    "verdicts of dedup stores": dedup.DedupVerdict,
}
"""Their members' values travel, or are in files."""


def _samples() -> Iterator[Sample]:
    for route in ROUTES:
        low, high = route.versions
        first, last = route.advertised or route.versions
        needs = route.needs
        right = "" if needs is None else f" {needs.operation:d} {needs.resource:d}"
        text = f"{route.name} {low}-{high} {first}-{last} {route.stage.value}{right}"
        yield Sample(f"api {route.key}", text.encode())
    metrics = Metrics()
    node: Any = SimpleNamespace(metrics=metrics)
    observe(node)
    for family in metrics.catalogue.families.values():
        labels = " ".join(family.labels)
        yield Sample(f"metric {sample_name(family)}", f"{family.kind} {labels}".encode())
    for scope, table in (
        ("topic", TOPIC_CONFIGS),
        ("group", GROUP_CONFIGS),
        ("broker", BROKER_CONFIGS),
    ):
        for config in table:
            synonyms = " ".join(one.name for one in config.synonyms)
            text = f"{config.type:d} {config.default} {config.mode.value} {synonyms}"
            yield Sample(f"{scope} config {config.name}", text.encode())
    yield from _routes()
    for title, actions in (("sqs", ACTIONS), ("sns", SNS_ACTIONS)):
        yield Sample(f"{title} actions", " ".join(sorted(actions)).encode())
    for path, command in _commands():
        options = sorted(
            " ".join(sorted((*one.opts, *one.secondary_opts))) for one in command.params
        )
        yield Sample(f"command {' '.join(path)}", "; ".join(options).encode())
    for title, kind in NAMED.items():
        text = " ".join(f"{one.name}={one.value}" for one in kind)
        yield Sample(title, text.encode())
    for title, kind in VALUED.items():
        yield Sample(title, " ".join(str(one.value) for one in kind).encode())


def _routes() -> Iterator[Sample]:
    for row in ENDPOINTS:
        name = f"{row.method} {row.path}"
        asked = [(one.name, one.kind, one.default, one.is_required) for one in row.parameters]
        told = [row.status, row.media_type, asked, _shape(row.body), _shape(row.answer)]
        yield Sample(f"route {name}", json.dumps(told).encode())
    for path in PAGES:
        yield Sample(f"page {path}", b"")
    for one in REGISTRY_ROWS:
        yield Sample(f"registry route {one.method} {one.path}", str(one.is_raw).encode())
    for path in REGISTRY_PAGES:
        yield Sample(f"registry page {path}", b"")
    for page in CONSOLE_ROWS:
        yield Sample(f"console route {page.method} {page.path}", b"")


def _shape(kind: Any) -> Any:
    """The JSON of a type, without the names of classes and without prose."""
    if kind is None:
        return None
    schema = msgspec.json.schema(kind)
    return _inlined(schema, schema.get("$defs", {}))


def _inlined(schema: Any, parts: Any) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, parts) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(parts[schema["$ref"].rpartition("/")[2]], parts)
    if "properties" in schema:
        inner = {name: _inlined(one, parts) for name, one in schema["properties"].items()}
        return {"properties": inner, "required": schema.get("required", [])}
    left_out = ("title", "description", "$defs")
    return {name: _inlined(one, parts) for name, one in schema.items() if name not in left_out}


def _commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    waiting: list[tuple[tuple[str, ...], Any]] = [(("penstock",), app)]
    while waiting:
        path, command = waiting.pop(0)
        if not isinstance(command, click.Group):
            yield path, command
            continue
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                waiting.append(((*path, name), child))


BOOK: Final = Book("names", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_names_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_name_is_lost() -> None:
    BOOK.check_names()
