"""`penstock encryption`: key-encryption keys of data at rest, and their rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.output import OutputFormat, format_option, print_listing
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from penstock.cli.terminal.progress import Progress


@click.group("encryption", no_args_is_help=True)
def encryption() -> None:
    """Manage the keys of encryption at rest."""


@encryption.command("new-key")
def new_key_command() -> None:
    """Print a new key-encryption key: 32 random bytes in base64.

    \b
    penstock encryption new-key > /etc/penstock/kek
    """
    import base64

    from penstock.runtime.random import SystemRandom
    from penstock.security.keyring import KEY_BYTES

    print(base64.b64encode(SystemRandom().random_bytes(KEY_BYTES)).decode())


@encryption.command("status")
@brokers_option
@format_option
def status_command(brokers: str, format: OutputFormat) -> None:
    """Show each node's key-encryption keys by id, and how many logs use each.

    A key that no log uses, and that is not used for new logs, may be deleted.

    \b
    penstock encryption status
    """

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.encryption import EncryptionAdmin

        uses = await EncryptionAdmin(session.cluster).describe()
        document = [
            {"node": use.node_id, "key": use.key_id, "in_use": use.is_current, "logs": use.logs}
            for use in uses
        ]
        cells = [
            (use.node_id, use.key_id or "not encrypted", use.is_current, use.logs) for use in uses
        ]
        print_listing(format, document, ("node ", "key", "for new logs", "logs "), cells)

    run(brokers, work)


@encryption.command("rotate")
@brokers_option
def rotate_command(brokers: str) -> None:
    """Make every node reload its keys and rewrap the keys of all logs with the first one.

    Put the new key on the first line of the source that encryption.kek.source names, keep the old
    ones below it, and run this. Only the small wrapped keys of the logs are rewritten, not the
    data. When `penstock encryption status` shows no log that uses an old key, remove its line.

    \b
    penstock encryption rotate
    """

    async def work(session: CommandSession) -> None:
        from penstock.cli.terminal.progress import Progress
        from penstock.client.admin.encryption import EncryptionAdmin

        client = EncryptionAdmin(session.cluster)
        bars: dict[int, tuple[Progress, int]] = {}

        def tell(node_id: int, done: int, remaining: int) -> None:
            title = f"rotating on node {node_id}"
            bar, shown = bars.get(node_id) or (Progress(title, done + remaining, "logs"), 0)
            bar.advance(done - shown)
            bars[node_id] = bar, done

        try:
            rotated = await client.rotate(await client.nodes(), tell)
        finally:
            for bar, _ in bars.values():
                bar.__exit__(None, None, None)
        for node_id, count in rotated.items():
            print(f"node {node_id}: {count} logs now use its first key")

    run(brokers, work)
