"""`penstock debug bundle`: one file of diagnostics for a problem report, without secrets.

The bundle is needed most when things do not work, so parts that cannot be collected are listed in
`missing.txt` and the rest is written. It does not contain records, keys or values of topics.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock import __version__
from penstock.cli.cluster.doctor import ASK_SECONDS, config_option, examine, http_option
from penstock.cli.terminal.errors import UserError, explain
from penstock.cli.terminal.progress import Progress
from penstock.cli.terminal.redaction import REDACTED, is_secret, redact
from penstock.cli.terminal.session import CommandSession, brokers_option, run

LOG_BYTES_MAX = 4 << 20
PACKAGES = ("uvloop", "crc32c", "cramjam", "msgspec", "starlette", "uvicorn", "httptools", "click")


@click.group("debug", no_args_is_help=True)
def debug() -> None:
    """Collect diagnostics."""


@debug.command("bundle")
@click.option(
    "-o",
    "--output",
    default="penstock-debug.tar.gz",
    show_default=True,
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="The file to write.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help=f"A log file, whose last {LOG_BYTES_MAX >> 20} MiB are included; repeatable.",
)
@click.option(
    "--data",
    default="./penstock-data",
    show_default=True,
    metavar="DIR",
    help="A node's data directory.",
)
@config_option
@http_option
@brokers_option
def bundle(
    output: str,
    logs: tuple[str, ...],
    data: str,
    config: str | None,
    urls: tuple[str, ...],
    brokers: str,
) -> None:
    """Write versions, configs, metrics, cluster state and log tails to one file.

    Passwords, keys and tokens in configs and logs are redacted; check the file all the same before
    you share it. It contains no records of topics.

    \b
    penstock debug bundle --config node.toml --http http://127.0.0.1:8080 --log node.log
    """
    gathered = Gathered()
    gathered.take("versions.json", lambda: _json(_versions()))
    gathered.take(
        "doctor.json", lambda: _json([c._asdict() for c in examine(data, config, urls, brokers)])
    )
    for name, ask in (
        ("cluster.json", _cluster),
        ("topics.json", _topics),
        ("groups.json", _groups),
        ("broker-configs.json", _configs),
    ):
        gathered.take(name, lambda ask=ask: _json(run(brokers, ask)))
    if config is not None:
        gathered.take("node.toml", lambda: redact(Path(config).read_text(encoding="utf-8")))
    for number, url in enumerate(urls, start=1):
        for page in ("version", "readyz", "metrics"):
            gathered.take(f"http-{number}/{page}.txt", lambda url=url, page=page: _page(url, page))
    for number, path in enumerate(logs, start=1):
        name = f"logs/{number}-{Path(path).name}"
        gathered.take(name, lambda path=path: redact(_tail(Path(path))))
    gathered.write(Path(output))
    print(f"{output}: {len(gathered.files)} files, {len(gathered.missing)} could not be collected")


class Gathered:
    """Collected files by name, and the reasons for missing ones."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.missing: list[str] = []
        self._progress = Progress("gathering", unit="files")

    def take(self, name: str, make: Callable[..., str]) -> None:
        self._progress.advance()
        try:
            self.files[name] = make()
        except Exception as error:
            text = explain(error) or (
                error.args[0]
                if isinstance(error, UserError)
                else f"{type(error).__name__}: {error}"
            )
            self.missing.append(f"{name}: {redact(str(text))}")

    def write(self, path: Path) -> None:
        """Writes the bundle, readable for its owner only, whatever the umask."""
        self._progress.stop()
        import io
        import tarfile

        files = dict(self.files)
        if self.missing:
            files["missing.txt"] = "\n".join(self.missing) + "\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name, text in files.items():
                body = text.encode()
                entry = tarfile.TarInfo(f"penstock-debug/{name}")
                entry.size, entry.mode = len(body), 0o600
                tar.addfile(entry, io.BytesIO(body))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _versions() -> dict[str, Any]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    def found(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    return {
        "penstock": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": {name: found(name) for name in PACKAGES},
    }


async def _cluster(session: CommandSession) -> dict[str, Any]:
    from penstock.cli.cluster.cluster import describe_cluster

    return await describe_cluster(session)


async def _topics(session: CommandSession) -> list[dict[str, Any]]:
    from penstock.client.admin.admin import Admin

    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition": p.index,
                    "leader": p.leader_id,
                    "replicas": list(p.replicas),
                    "isr": list(p.isr),
                }
                for p in topic.partitions.values()
            ],
        }
        for topic in await Admin(session.cluster).list_topics()
    ]


async def _groups(session: CommandSession) -> list[dict[str, Any]]:
    from penstock.client.admin.groups import list_groups

    return [
        {"name": g.name, "state": g.state, "kind": g.kind, "coordinator": g.coordinator_id}
        for g in await list_groups(session.cluster)
    ]


async def _configs(session: CommandSession) -> dict[str, dict[str, Any]]:
    from penstock.client.admin.admin import BROKER, Admin

    await session.cluster.refresh(None)
    admin = Admin(session.cluster)
    return {
        str(node): {
            entry.name: REDACTED if entry.is_sensitive or is_secret(entry.name) else entry.value
            for entry in await admin.describe_configs(BROKER, str(node))
        }
        for node in sorted(session.cluster.metadata.brokers)
    }


def _page(url: str, page: str) -> str:
    from penstock.runtime.http_request import ask_web

    status, body = ask_web("GET", f"{url.rstrip('/')}/{page}", None, {}, ASK_SECONDS)
    return f"{body.decode(errors='replace')}" if status == 200 else f"{status}\n{body[:500]!r}\n"


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES_MAX))
        return file.read(LOG_BYTES_MAX).decode(errors="replace")
