"""Writes the reference pages and the code map from what the code says about itself.

`make reference` runs this; `tests/docs` fails while a page differs from what it would write. So
a config, API, metric or command exists in the documentation as soon as it exists at all.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

import penstock
import penstock.testing
from penstock.base.metrics import Family
from penstock.broker.api.metrics import Metrics
from penstock.broker.api.routes import ROUTES
from penstock.cli.main import app
from penstock.cluster.configs.config_table import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from penstock.cluster.configs.config_types import Config, UpdateMode
from penstock.gateway.app import PAGES
from penstock.gateway.console.middleware import API
from penstock.gateway.console.mount import ROWS
from penstock.gateway.http.metrics import sample_name
from penstock.gateway.registry.route_table import PAGES as REGISTRY_PAGES
from penstock.gateway.registry.route_table import ROWS as REGISTRY_ROWS
from penstock.gateway.rest.endpoint import Parameter
from penstock.gateway.rest.permissions import ACTIONS, SNS_ACTIONS, shown
from penstock.gateway.rest.permissions import ROUTES as ROUTE_NEEDS
from penstock.gateway.rest.route_table import ENDPOINTS
from penstock.node.metrics.node_metrics import observe

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "penstock"
LINE_MAX = 100
NOTE = "<!-- Written by docs/gen.py: change the code it reads, then run `make reference`. -->\n"


def configs_page() -> str:
    lines = [
        "# Configuration",
        NOTE,
        "Kafka's names. Broker configs are set with `penstock up --set name=value` or in the",
        "config file; those that change *cluster-wide* or *per-broker* can also be set while the",
        "broker runs. Topic configs are set when a topic is created or altered; where a topic has",
        "no value of its own, the broker config named beside it decides. `flush.policy` is",
        "Penstock's own.",
        "",
    ]
    for title, table in (("Topics", TOPIC_CONFIGS), ("Groups", GROUP_CONFIGS)):
        lines += [f"## {title}", "", "| Name | Type | Default | Valid | Broker config | Meaning |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [_row(_config(c), *_synonyms(c), c.doc) for c in table if not c.is_inert]
        lines.append("")
    lines += ["## Brokers", "", "| Name | Type | Default | Valid | Changes | Meaning |"]
    lines += ["|---|---|---|---|---|---|"]
    lines += [_row(_config(c), _mode(c), c.doc) for c in BROKER_CONFIGS if not c.is_inert]
    inert = [c for c in (*TOPIC_CONFIGS, *GROUP_CONFIGS, *BROKER_CONFIGS) if c.is_inert]
    lines += [
        "",
        "## Accepted, without effect",
        "",
        "Known so that Kafka's config files and tools can be kept; they change nothing here.",
        "",
        "| Name | Type | Default | Valid | Meaning in Kafka |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(_config(c), c.doc) for c in inert]
    return _page(lines)


def apis_page() -> str:
    lines = [
        "# Kafka APIs",
        NOTE,
        "What ApiVersions answers. *Ordered*: the connection's next request waits for the reply.",
        "*Pipelined*: it does not; replies still leave in the order of the requests.",
        "",
        "| Key | API | Versions | Flexible from | Needs | Replies | Meaning |",
        "|---|---|---|---|---|---|---|",
    ]
    for route in sorted(ROUTES, key=lambda route: route.key):
        low, high = route.advertised or route.versions
        wire = route.request.WIRE
        needs = "nothing"
        if route.needs is not None:
            needs = f"{route.needs.operation.name} on {route.needs.resource.name}".lower()
        cells = (
            f"{route.key} | {route.name} | {low}-{high}" if low != high
            else f"{route.key} | {route.name} | {low}"
        )  # fmt: skip
        flexible = "never" if wire.flexible is None else str(wire.flexible)
        meaning = _first_line(route.request.__doc__)
        lines.append(_row(cells, flexible, needs, route.stage.value, meaning))
    return _page(lines)


def metrics_page() -> str:
    lines = [
        "# Metrics",
        NOTE,
        "Served on `/metrics` of the HTTP port as Prometheus text, or as OpenMetrics on request.",
        "",
        "| Name | Kind | Labels | Meaning |",
        "|---|---|---|---|",
    ]
    for family in families():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(_row(f"`{sample_name(family)}`", family.kind, labels, family.help))
    return _page(lines)


def http_page() -> str:
    """Page of the HTTP routes, with a section for each family."""
    lines = [
        "# HTTP routes",
        NOTE,
        "A running node shows the same, with the fields of every body, on `/docs`, and for",
        "programs on `/openapi.json`. Errors are `application/problem+json` with `status`, `code`",
        "(Kafka's name) and `detail`.",
        "",
    ]
    for family in dict.fromkeys(row.tag for row in ENDPOINTS):
        rows = [row for row in ENDPOINTS if row.tag == family]
        lines += [f"## {family}", "", "| Route | Does | Right it needs |", "|---|---|---|"]
        for row in rows:
            name = f"{row.method} {row.path}"
            lines.append(_row(f"`{name}`", row.summary, shown(ROUTE_NEEDS.get(name, ()))))
        lines.append("")
        for row in rows:
            if row.parameters:
                lines += [f"`{row.method} {row.path}` takes in its query:", ""]
                lines += ["| Parameter | Default | Meaning |", "|---|---|---|"]
                lines += [_row(f"`{one.name}`", _given(one), one.meaning) for one in row.parameters]
                lines.append("")
    lines += ["## schema registry", "", "| Route | Does |", "|---|---|"]
    lines += [_row(f"`{row.method} {row.path}`", row.summary) for row in REGISTRY_ROWS]
    lines += [_row(f"`GET {path}`", meaning) for path, meaning in REGISTRY_PAGES.items()]
    lines += ["", "## SQS and SNS", ""]
    lines += ["`POST /` in Amazon's JSON and query protocols; the actions that are served:", ""]
    lines += ["| Service | Action | Right it needs |", "|---|---|---|"]
    for service, actions in (("SQS", ACTIONS), ("SNS", SNS_ACTIONS)):
        lines += [_row(service, f"`{name}`", shown(row)) for name, row in sorted(actions.items())]
    lines += ["", "## pages", "", "| Route | Answers |", "|---|---|"]
    lines += [_row(f"`GET {path}`", meaning) for path, meaning in PAGES.items()]
    lines += ["", "## console", ""]
    lines += ["What the console's pages ask beside the routes above. They change with the pages:"]
    lines += ["programs should not rely on them.", "", "| Route | Does |", "|---|---|"]
    lines += [_row(f"`{row.method} {API}{row.path}`", row.summary) for row in ROWS]
    return _page(lines)


def _given(parameter: Parameter) -> str:
    if parameter.is_required:
        return "required"
    return "" if parameter.default is None else f"`{str(parameter.default).lower()}`"


def families() -> list[Family]:
    """Every metric of a running node: those counted and those read at scrape time."""
    metrics = Metrics()
    # Declaring needs only the catalogue; the node itself is used only by scrapes.
    node: Any = SimpleNamespace(metrics=metrics)
    observe(node)
    return [family for _, family in sorted(metrics.catalogue.families.items())]


def cli_page() -> str:
    lines = ["# Command line", NOTE]
    for path, command in commands():
        lines += [f"## `{' '.join(path)}`", "", _text(command.help), ""]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
        if arguments:
            lines += ["| Argument | Meaning |", "|---|---|"]
            lines += [_row(f"`{_shown(p)}`", _text(p.help)) for p in arguments]
            lines.append("")
        if options:
            lines += ["| Option | Default | Meaning |", "|---|---|---|"]
            lines += [_row(f"`{_shown(p)}`", _default(p), _text(p.help)) for p in options]
            lines.append("")
    return _page(lines)


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that reach it."""
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


def _config(config: Config) -> str:
    default = "" if config.default is None else f"`{config.default}`" if config.default else "empty"
    valid = config.limit.text if config.limit is not None else ""
    return f"`{config.name}` | {config.type.name.lower()} | {default} | {_cell(valid)}"


def _synonyms(config: Config) -> Iterable[str]:
    return [", ".join(f"`{synonym.name}`" for synonym in config.synonyms)]


def _mode(config: Config) -> str:
    return "at start" if config.mode is UpdateMode.READ_ONLY else config.mode.value


def _shown(param: Any) -> str:
    if param.param_type_name == "argument":
        return _metavar(param)
    names = [*param.opts, *param.secondary_opts]
    return ", ".join(names) if param.is_flag else f"{', '.join(names)} {_metavar(param)}".strip()


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper().replace("_", "-"))


def _default(param: Any) -> str:
    if isinstance(getattr(param, "show_default", None), str):
        return str(param.show_default)
    default = getattr(param.default, "value", param.default)
    # An option without default holds a marker of click's own.
    if not isinstance(default, str | int | float) or default in (False, ""):
        return "required" if param.required else ""
    return f"`{default}`"


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().partition("\n")[0]


def _text(help_text: str | None) -> str:
    return (help_text or "").replace("\b\n", "\n").strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _row(first: str, *rest: str) -> str:
    return "| " + " | ".join([first, *map(_cell, rest)]) + " |"


def _page(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def python_page() -> str:
    lines = [
        "# Python API",
        NOTE,
        "All names are imported from `penstock`; those for tests from `penstock.testing`.",
        "",
    ]
    for module in (penstock, penstock.testing):
        names = sorted(vars(module)["_HOMES"], key=str.lower)
        lines += [f"## `{module.__name__}`", ""]
        for name in names:
            lines += _documented(f"{module.__name__}.{name}", getattr(module, name))
    return _page(lines)


def _documented(name: str, found: Any) -> list[str]:
    """A class with its public methods and properties, or a function."""
    lines = [f"### `{name.rpartition('.')[2]}`", ""]
    is_error = isinstance(found, type) and issubclass(found, Exception)
    if callable(found) and not is_error and (shown := _signature(name, found)):
        lines += ["```py", shown, "```", ""]
    lines += [_markdown(inspect.getdoc(found)), ""]
    if not isinstance(found, type) or is_error or issubclass(found, tuple):
        return lines
    for attribute, value in _public(found).items():
        if isinstance(value, property):
            if value.__doc__:
                lines += [f"**`{attribute}`**: {_markdown(inspect.getdoc(value))}", ""]
        elif shown := _signature(attribute, value):
            lines += ["```py", shown, "```", "", _markdown(inspect.getdoc(value)), ""]
    return lines


def _public(found: type) -> dict[str, Any]:
    """Public methods and properties, those of bases of this package first."""
    classes = [one for one in reversed(found.__mro__) if one.__module__.startswith("penstock.")]
    return {
        name: value.__func__ if isinstance(value, staticmethod | classmethod) else value
        for one in classes
        for name, value in vars(one).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


def _signature(name: str, found: Any) -> str:
    """A call as it is written, without `self`; long ones have a line for each parameter."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return ""
    given = signature.parameters.values()
    parameters = [one for one in given if one.name not in ("self", "unknown")]
    signature = signature.replace(parameters=parameters)
    prefix = "await " if inspect.iscoroutinefunction(found) else ""
    shown = f"{prefix}{name}{_short(str(signature))}"
    if len(shown) <= LINE_MAX:
        return shown
    lines = [str(one) for one in parameters]
    named = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    if named:
        lines.insert(parameters.index(named[0]), "*")
    result = signature.return_annotation
    arrow = "" if result is signature.empty else f" -> {inspect.formatannotation(result)}"
    inner = "".join(f"    {_short(line)},\n" for line in lines)
    return f"{prefix}{name}(\n{inner}){_short(arrow)}"


def _short(text: str) -> str:
    """Annotations without the modules of their names."""
    text = re.sub(r"<function (\w+) at \w+>", r"\1", text)
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(\w+)", r"\1", text).replace("NoneType", "None")


def _markdown(doc: str | None) -> str:
    """A docstring, with its examples as code."""
    found: list[str] = []
    is_code = False
    for line in (doc or "").splitlines():
        wanted = line.startswith((">>>", "    ")) or (is_code and line.strip() != "")
        if wanted != is_code:
            found += ["```pycon"] if wanted else ["```"]
        is_code = wanted
        found.append(line)
    return "\n".join([*found, "```"] if is_code else found).strip()


PAGES_WRITTEN: dict[str, Callable[[], str]] = {
    "configs.md": configs_page,
    "apis.md": apis_page,
    "metrics.md": metrics_page,
    "cli.md": cli_page,
    "http.md": http_page,
    "python.md": python_page,
}


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, build in PAGES_WRITTEN.items():
        (REFERENCE / name).write_text(build(), encoding="utf-8")
        print(f"wrote docs/reference/{name}")


if __name__ == "__main__":
    main()
