"""`penstock demo`: starts a broker with the shop, and runs until Ctrl-C.

Prints the addresses to open, then the status: one line that changes in place on a terminal, a line
for each look elsewhere. `--once` ends it as soon as there is data of every kind, for tests. The
broker is a child process whose data, log and directory do not outlive the command.
"""

import contextlib
import logging
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.errors import UserError

if TYPE_CHECKING:
    from penstock.cli.demo.shop import Shop

READY = re.compile(r"^penstock ready kafka=(\S+) http=(\S+)", re.MULTILINE)
START_SECONDS = 60.0
POLL_SECONDS = 5.0
POLL_SECONDS_TERMINAL = 1.0
STOP_SECONDS = 15.0
ERASE_LINE = "\r\x1b[K"


@click.command("demo", short_help="Start a broker with a demo shop to explore.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    default=40.0,
    show_default=True,
    help="Orders per second.",
)
@click.option(
    "--failures",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="Share of messages whose processing fails at first.",
)
@click.option("--once", is_flag=True, help="End as soon as there is data of every kind.")
@click.option(
    "--seconds", type=float, default=0.0, metavar="N", help="End after N seconds [never]."
)
@click.option("--any-port", is_flag=True, help="Use free ports instead of 9092 and 8080.")
def demo(rate: float, failures: float, once: bool, seconds: float, any_port: bool) -> int:
    """Start a broker with a demo shop: load, failures, dead letters and lag to explore.

    Uses the ports 9092 and 8080, or free ones if those are in use. The data is in a temporary
    directory and is deleted when the command ends.

    \b
    penstock demo
    penstock demo --rate 200 --failures 0.2
    """
    import asyncio

    from penstock.cli.demo.shop import Shop

    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    broker: subprocess.Popen[bytes] | None = None
    # The shop's workers fail on purpose: their log must not interrupt the status line.
    logging.basicConfig(filename=folder / "shop.log", level=logging.WARNING)
    try:
        with open(folder / "broker.log", "wb") as log:
            broker = _start(folder, log.fileno(), any_port=any_port)
        kafka, http = _wait_ready(broker, folder / "broker.log")
        shop = Shop(kafka, http, rate, failures)
        return asyncio.run(_play(shop, once=once, seconds=seconds))
    except KeyboardInterrupt:
        return 0
    finally:
        logging.shutdown()
        if broker is not None:
            _stop(broker)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, log: int, *, any_port: bool) -> "subprocess.Popen[bytes]":
    ports = [0 if any_port or _is_taken(port) else port for port in (9092, 8080)]
    command = [sys.executable, "-m", "penstock.cli.main", "up", "--data", str(folder / "data")]
    command += ["--kafka-port", str(ports[0]), "--http-port", str(ports[1])]
    # In its own session: Ctrl-C reaches only this process, which then stops the broker.
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603


def _stop(broker: "subprocess.Popen[bytes]") -> None:
    broker.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        broker.wait(STOP_SECONDS)
    if broker.poll() is None:
        broker.kill()
        broker.wait()


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait_ready(broker: "subprocess.Popen[bytes]", log: Path) -> tuple[str, str]:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and broker.poll() is None:
        found = READY.search(log.read_text())
        if found is not None:
            return found[1], found[2]
        time.sleep(0.05)
    raise UserError(f"the broker did not start: {log.read_text().strip()}")


async def _play(shop: "Shop", *, once: bool, seconds: float) -> int:
    import asyncio

    await shop.open()
    _say(shop)
    playing = asyncio.ensure_future(shop.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, playing.cancel)
    watching = asyncio.ensure_future(_watch(shop, once=once, seconds=seconds))
    await asyncio.wait((playing, watching), return_when=asyncio.FIRST_COMPLETED)
    has_failed = playing.done() and not playing.cancelled()
    playing.cancel()
    watching.cancel()
    outcomes = await asyncio.gather(playing, watching, return_exceptions=True)
    if sys.stdout.isatty():
        print()
    if has_failed and isinstance(outcomes[0], BaseException):
        raise outcomes[0]
    return 0 if outcomes[1] is True or not once else 1


async def _watch(shop: "Shop", *, once: bool, seconds: float) -> bool:
    """Prints the status; True when there is data of every kind."""
    import asyncio

    from penstock.cli.demo.status import DemoStatus, read_status

    loop = asyncio.get_running_loop()
    is_terminal = sys.stdout.isatty()
    pause = 0.5 if once else POLL_SECONDS_TERMINAL if is_terminal else POLL_SECONDS
    deadline = loop.time() + seconds if seconds else float("inf")
    while loop.time() < deadline:
        await asyncio.sleep(pause)
        status: DemoStatus = await asyncio.to_thread(read_status, shop.http)
        has_all = status.has_everything and shop.packed > 0
        line = f"{status}, {shop.packed:,} packed, {shop.mailed:,} mailed"
        if is_terminal:
            # One character less than the width: a line that wraps cannot be replaced.
            width = shutil.get_terminal_size().columns - 1
            print(ERASE_LINE + line[:width], end="", flush=True)
        elif not once or has_all:
            print(line, flush=True)
        if once and has_all:
            return True
    return False


def _say(shop: "Shop") -> None:
    print(
        f"""
A shop takes {shop.rate:g} orders a second. Open

  {shop.http}/          the console
  {shop.http}/docs      every HTTP route, to try out
  {shop.http}/metrics   what Prometheus would see

or look at it from another terminal:

  export PENSTOCK_BROKERS={shop.brokers}
  penstock consume orders -o end
  penstock group describe billing analytics
  penstock group advise analytics
  penstock queue list
  penstock dlq stats shipments
  penstock dlq redrive shipments --error TimeoutError --dry-run

Ctrl-C stops it and deletes its data.
""",
        flush=True,
    )
