"""The generated reference is what the code says today, and says something about everything."""

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from docs import gen
from penstock.base.fair_scheduler import FairScheduler
from penstock.base.metrics import Catalogue
from penstock.broker.api.metrics import Metrics
from penstock.broker.api.routes import ROUTES
from penstock.cluster.configs.config_table import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from penstock.gateway.app import HttpState, build_app
from penstock.gateway.console.middleware import API
from penstock.gateway.console.mount import ROWS as CONSOLE_ROWS
from penstock.gateway.http.router import RouteIndex
from penstock.gateway.registry.endpoint import ROOTS
from penstock.gateway.registry.route_table import ROWS
from penstock.gateway.sns.actions import SNS_ACTIONS
from penstock.gateway.sqs.actions import SQS_ACTIONS


@pytest.mark.parametrize("name", gen.PAGES_WRITTEN)
def test_reference_pages_are_up_to_date(name: str) -> None:
    written = (gen.REFERENCE / name).read_text(encoding="utf-8")
    assert written == gen.PAGES_WRITTEN[name](), "run `make reference`"


def test_every_config_is_documented() -> None:
    page = gen.configs_page()
    for config in (*TOPIC_CONFIGS, *GROUP_CONFIGS, *BROKER_CONFIGS):
        assert f"| `{config.name}` |" in page
        assert len(config.doc) > 8, config.name


def test_every_api_is_documented() -> None:
    page = gen.apis_page()
    for route in ROUTES:
        assert f"| {route.key} | {route.name} |" in page
        assert len(route.request.__doc__ or "") > 8, route.name


def test_every_metric_is_documented_with_a_valid_name() -> None:
    page = gen.metrics_page()
    for family in gen.families():
        assert f"| `{family.name}` |" in page
        assert family.name.startswith("penstock_")
        assert family.help.endswith("."), family.name
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name


def test_every_command_and_option_has_help() -> None:
    silent = []
    for path, command in gen.commands():
        if not command.help:
            silent.append(" ".join(path))
        silent += [
            f"{' '.join(path)} {param.name}"
            for param in command.params
            if not getattr(param, "hidden", False) and not getattr(param, "help", None)
        ]
    assert not silent


def test_every_served_route_is_documented() -> None:
    """Asked of the application itself, so that no route comes in by another way."""
    page = gen.http_page()
    ctx: Any = SimpleNamespace(
        metrics=Metrics(), metadata=SimpleNamespace(scheduler=FairScheduler())
    )
    gateway: Any = SimpleNamespace(ctx=ctx)
    # Without its SQS and SNS endpoints, which are in front of the application and have one route.
    app = build_app(HttpState("1", 1, "c", "k", Catalogue(), lambda: None, lambda: None, gateway))
    assert isinstance(app, Starlette)
    (directory,) = app.routes
    assert isinstance(directory, RouteIndex)
    served = [route for route in directory.routes if isinstance(route, Route)]
    assert len(served) > 50
    for route in served:
        # The registry's routes are found in a table of their own, behind one that takes all.
        if "{rest:path}" in route.path or route.path in ROOTS:
            continue
        shown = any(f"`{method} {route.path}`" in page for method in route.methods or ())
        assert shown or route.path == "/", route.path
    for row in ROWS:
        assert f"`{row.method} {row.path}`" in page
    for own in CONSOLE_ROWS:
        assert f"`{own.method} {API}{own.path}`" in page


def test_every_sqs_and_sns_action_is_documented() -> None:
    page = gen.http_page()
    for action in (*SQS_ACTIONS, *SNS_ACTIONS):
        assert f"`{action}`" in page
