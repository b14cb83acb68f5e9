"""Starts a broker with the shop, prints the addresses to open, and runs until Ctrl-C.

`--once` ends it as soon as there is data of every kind, for tests.
"""

import argparse
import asyncio
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from demo.shop import Shop
from demo.status import DemoStatus, read_status

READY = re.compile(r"^penstock ready kafka=(\S+) http=(\S+)", re.MULTILINE)
START_SECONDS = 60.0
LOOK_SECONDS = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--rate", type=float, default=40.0, help="orders a second")
    parser.add_argument(
        "--failures",
        type=float,
        default=0.05,
        help="share of messages whose processing fails at first",
    )
    parser.add_argument(
        "--once", action="store_true", help="end as soon as there is data of every kind"
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="give up after so long")
    parser.add_argument("--any-port", action="store_true", help="free ports, not 9092 and 8080")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    with open(folder / "broker.log", "wb") as log:
        broker = _start(folder, log.fileno(), any_port=options.any_port)
    try:
        kafka, http = _wait_ready(broker, folder / "broker.log")
        shop = Shop(kafka, http, options.rate, options.failures)
        return asyncio.run(_play(shop, once=options.once, seconds=options.seconds))
    except KeyboardInterrupt:
        return 0
    finally:
        broker.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            broker.wait(15)
        if broker.poll() is None:
            broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, log: int, *, any_port: bool) -> "subprocess.Popen[bytes]":
    ports = [0 if any_port or _is_taken(port) else port for port in (9092, 8080)]
    command = [sys.executable, "-m", "penstock.cli.main", "up", "--data", str(folder / "data")]
    command += ["--kafka-port", str(ports[0]), "--http-port", str(ports[1])]
    # In its own session: Ctrl-C reaches only this process, which then stops the broker.
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


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
    sys.exit(f"the broker did not start:\n{log.read_text()}")


async def _play(shop: Shop, *, once: bool, seconds: float) -> int:
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
    if has_failed:
        raise outcomes[0] if isinstance(outcomes[0], BaseException) else AssertionError
    return 0 if outcomes[1] is True or not once else 1


async def _watch(shop: Shop, *, once: bool, seconds: float) -> bool:
    """Prints the status; True when there is data of every kind."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds if seconds else float("inf")
    while loop.time() < deadline:
        await asyncio.sleep(0.5 if once else LOOK_SECONDS)
        status: DemoStatus = await asyncio.to_thread(read_status, shop.http)
        is_told = status.has_everything and shop.packed > 0
        if not once or is_told:
            print(f"{status}; {shop.packed:,} packed, {shop.mailed:,} mailed", flush=True)
        if once and is_told:
            return True
    return False


def _say(shop: Shop) -> None:
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

Ctrl-C ends it, and nothing of it stays.
""",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
