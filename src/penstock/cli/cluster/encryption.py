"""`penstock encryption`: the keys that data lie under on disk, and changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.output import OutputFormat, format_option, print_listing
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from penstock.cli.terminal.progress import Progress


@click.group("encryption", no_args_is_help=True)
def encryption() -> None:
    """The keys that data lie under on disk."""


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
    """Show each node's keys by their ids, and how many logs lie under each.

    A key that no log lies under, and that is not in use, may be thrown away.

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
    """Have every node read its keys again and put all its logs under the first one.

    Write the new key on the first line of what encryption.kek.source names, keep the old ones
    below it, and run this. Only the small wrapped keys of logs are written again, not the data.
    When `penstock encryption status` shows no log under an old key, remove its line.

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
            print(f"node {node_id}: {count} logs were put under its first key")

    run(brokers, work)
