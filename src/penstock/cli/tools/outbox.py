"""`penstock outbox`: relays a database's outbox into topics; creates, counts and retries.

An SQLAlchemy URL names the database. SQLAlchemy is an optional dependency, so it is imported on
demand, and its absence is reported in one line.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat, format_option, print_data, print_table
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from penstock.app.outbox import Outbox, Relay

database_option = click.option(
    "-d",
    "--database",
    required=True,
    envvar="PENSTOCK_DATABASE",
    show_envvar=True,
    metavar="URL",
    help="Database URL, e.g. postgresql://user:password@host/app or sqlite:///app.db.",
)
table_option = click.option(
    "--table", default="penstock_outbox", show_default=True, help="The outbox's table."
)


@click.group("outbox", no_args_is_help=True)
def outbox() -> None:
    """Relay messages of a transactional outbox into topics."""


@outbox.command("init")
@database_option
@table_option
def init_command(database: str, table: str) -> None:
    """Create the outbox's tables, if they do not exist.

    \b
    penstock outbox init -d sqlite:///app.db
    penstock outbox init -d postgresql://app@db/app
    """
    with _opened(database, table) as (engine, found):
        found.metadata.create_all(engine)


@outbox.command("relay")
@database_option
@table_option
@brokers_option
@click.option("--once", is_flag=True, help="Stop when nothing is left to send.")
@click.option("--keep", default="1h", show_default=True, help="Retention of sent rows.")
@click.option(
    "--poll", default="100ms", show_default=True, help="Poll interval of an empty outbox."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=500,
    show_default=True,
    help="Rows per batch.",
)
@click.option(
    "--lease",
    default="10s",
    show_default=True,
    help="Lease of a relay; another relay takes over when it expires.",
)
@click.option(
    "--in-doubt",
    type=click.Choice(["stop", "resend", "skip"]),
    default="stop",
    show_default=True,
    help="If the cluster lost its record of sent batches: stop, resend the last one, or skip it.",
)
def relay_command(
    database: str,
    table: str,
    brokers: str,
    once: bool,
    keep: str,
    poll: str,
    batch: int,
    lease: str,
    in_doubt: str,
) -> None:
    """Send messages as they are committed, each exactly once and in order per key.

    Runs until SIGTERM or Ctrl-C. Several relays may run; they share the work and take over from
    each other.

    \b
    penstock outbox relay -d postgresql://app@db/app -b broker:9092
    penstock outbox relay -d sqlite:///app.db --once
    """
    with _opened(database, table) as (engine, found):
        from penstock.app.outbox.relay import Relay, RelayConfig, ResumeChoice

        config = RelayConfig(
            rows_max=batch,
            poll_ms=_ms(poll, "--poll"),
            lease_ms=_ms(lease, "--lease"),
            keep_ms=_ms(keep, "--keep"),
            in_doubt=ResumeChoice(in_doubt),
        )

        async def work(session: CommandSession) -> int:
            relay = Relay(engine, session.cluster, found, config)
            try:
                await (relay.drain() if once else _until_signal(relay))
            finally:
                relay.close()
            return relay.sent

        sent = run(brokers, work)
        print(f"penstock: {sent} messages sent", file=sys.stderr)


async def _until_signal(relay: Relay) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    running = loop.create_task(relay.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    print("penstock: relaying", file=sys.stderr, flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await running


@outbox.command("status")
@database_option
@table_option
@format_option
def status_command(database: str, table: str, format: OutputFormat) -> None:
    """Count messages by state, and show the errors of failed ones.

    \b
    penstock outbox status -d sqlite:///app.db
    """
    from sqlalchemy import select

    with _opened(database, table) as (engine, found), engine.connect() as connection:
        from penstock.app.outbox.tables import RowState

        counts = {state.name.lower(): n for state, n in found.counts(connection).items()}
        rows = found.tables.messages
        wanted = select(rows.c.id, rows.c.topic, rows.c.message_id, rows.c.error)
        failed = connection.execute(
            wanted.where(rows.c.state == RowState.FAILED).order_by(rows.c.id).limit(100)
        ).all()
    if format.is_data:
        print_data({"messages": counts, "failed": [dict(row._mapping) for row in failed]}, format)
        return
    print_table(("STATE", "MESSAGES "), list(counts.items()))
    if failed:
        print()
        print_table(("ID ", "TOPIC", "MESSAGE ID", "ERROR"), [tuple(row) for row in failed])


@outbox.command("retry")
@database_option
@table_option
def retry_command(database: str, table: str) -> None:
    """Retry failed messages, once the cause is fixed.

    \b
    penstock outbox retry -d sqlite:///app.db
    """
    with _opened(database, table) as (engine, found), engine.begin() as connection:
        print(f"{found.retry_failed(connection)} messages will be sent again")


@contextlib.contextmanager
def _opened(database: str, table: str) -> Iterator[tuple[Engine, Outbox]]:
    try:
        from sqlalchemy.exc import SQLAlchemyError

        from penstock.app.outbox.enqueue import Outbox
        from penstock.app.outbox.relay import open_engine
    except ImportError:
        raise UserError("the outbox needs SQLAlchemy: pip install 'penstock-mq[outbox]'") from None
    try:
        engine = open_engine(database)
    except ImportError as error:
        raise UserError(
            f"no driver for this database ({error}); for PostgreSQL: "
            "pip install 'penstock-mq[outbox,postgres]'"
        ) from None
    except SQLAlchemyError:
        raise UserError(
            "--database is not a database URL; write e.g. sqlite:///app.db or "
            "postgresql://user:password@host/app"
        ) from None
    try:
        yield engine, Outbox(table=table)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        is_missing = table in reason and ("no such table" in reason or "not exist" in reason)
        advice = "; create it with `penstock outbox init`" if is_missing else ""
        raise UserError(f"database error: {reason}{advice}") from None
    finally:
        engine.dispose()


def _ms(text: str, option: str) -> int:
    from penstock.app.durations import ms_of

    try:
        return ms_of(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None
