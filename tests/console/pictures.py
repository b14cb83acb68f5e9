"""Takes screenshots for the documentation: `make pictures`, or `python -m tests.console.pictures`.

The shop of `penstock demo` runs for a while, so that the charts have data; then each page is opened
in Chromium and captured into docs/images. The pictures are committed, and retaken only when the
console has changed visibly.
"""

import argparse
import asyncio
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.demo.shop import Shop
from tests.brokers import PenstockProcess
from tests.console.browser import Browser
from tests.console.scene import Scene

FOLDER = Path(__file__).parents[2] / "docs" / "images"
STAGES = (
    ("orders-to-lake", "bronze", "running", 1_284, 0, None, "orders", "orders-raw"),
    ("orders-to-lake", "silver", "running", 1_262, 14, None, "orders-raw", "orders-clean"),
    (
        "orders-to-lake",
        "gold",
        "failed",
        1_200,
        0,
        "column cents is missing in batch 1200",
        "orders-clean",
        "parquet /lake/totals",
    ),
    ("orders-to-lake", "alerts", "running", 1_260, 0, None, "orders-clean", "alerts"),
)
WIDTH, HEIGHT = 1440, 900
PHONE = (390, 844)


@contextlib.contextmanager
def open_shop(process: PenstockProcess) -> Iterator[Shop]:
    """Runs the shop in its own thread."""
    shop = Shop(process.bootstrap, process.http, 60.0, 0.08)
    loop = asyncio.new_event_loop()
    opened = threading.Event()
    playing: list[asyncio.Task[None]] = []

    async def play() -> None:
        await shop.open()
        opened.set()
        playing.append(loop.create_task(shop.run()))
        with contextlib.suppress(asyncio.CancelledError):
            await playing[0]

    thread = threading.Thread(target=loop.run_until_complete, args=(play(),))
    thread.start()
    opened.wait(60)
    try:
        yield shop
    finally:
        loop.call_soon_threadsafe(playing[0].cancel)
        thread.join(30)


def report_pipelines(scene: Scene) -> None:
    for pipeline, stage, state, batch, bad, error, source, target in STAGES:
        report = {"pipeline": pipeline, "stage": stage, "state": state, "batch": batch}
        report |= {"rows_in": batch * 980, "rows_out": batch * 980 - bad, "bad_rows": bad}
        report |= {"lag": 0 if error is None else 76_000, "error": error}
        report |= {"source": source, "target": target, "dlq": "shipments.dlq" if bad else ""}
        report["updated_ms"] = int(time.time() * 1000) - 2_000
        scene.publish("__pipelines", {"payload": report, "key": f"{pipeline}/{stage}"})


SIDES = ("width", "height")
SCREEN = {"deviceScaleFactor": 1, "mobile": False}


def take(
    browser: Browser, scene: Scene, folder: Path, size: tuple[int, int] = (WIDTH, HEIGHT)
) -> None:
    def shot(name: str) -> None:
        time.sleep(0.6)  # Until animations have ended.
        browser.picture(folder / f"console-{name}.png", *size)

    browser.call(
        "Emulation.setDeviceMetricsOverride", **SCREEN | dict(zip(SIDES, size, strict=True))
    )

    browser.go(f"{scene.console}#/topics")
    browser.shows("orders", "table")
    shot("topics")
    browser.go(f"{scene.console}#/topics/orders")
    browser.shows("6 partitions", ".stats")
    shot("topic")
    browser.go(f"{scene.console}#/topics/orders/messages")
    browser.click("tr.pick")
    browser.shows("Decoded", ".drawer")
    shot("message")
    browser.go(f"{scene.console}#/groups/analytics")
    browser.shows("Lag", ".stats")
    shot("group")
    browser.click("button", "Reset…")
    browser.shows("read again", "dialog")
    shot("reset")
    browser.go(f"{scene.console}#/queues")
    browser.shows("shipments", "table")
    shot("queues")
    browser.go(f"{scene.console}#/dlq/shipments.dlq")
    browser.shows("Errors", "main")
    if "running" in browser.text(".runs"):  # Of the pictures taken before in another size.
        browser.click(".runs button", "Stop")
        browser.until(lambda: "running" not in browser.text(".runs"), "the redrive stops")
    browser.click("button", "Redrive…")
    browser.fill("dialog input[name=rate]", "2")
    browser.fill("dialog input[name=limit]", "40")
    browser.click("dialog button[name=redrive]")
    browser.shows("running", ".runs")
    shot("dead-letters")
    browser.click("tbody tr")
    browser.shows("Dead-lettered by", ".drawer")
    shot("dead-letter")
    browser.go(f"{scene.console}#/schemas/orders-value")
    browser.click("[role=tab]", "Differences")
    browser.has(".diff .added")
    shot("schema")
    browser.go(f"{scene.console}#/nodes")
    browser.shows("Node 1", "main")
    shot("nodes")
    browser.go(f"{scene.console}#/nodes/1")
    browser.shows("Node 1 configs", "h1")
    shot("configs")
    browser.go(f"{scene.console}#/topics")
    browser.click("button", "New topic")
    browser.click("dialog button", "Add config")
    browser.fill("dialog input[name=config]", "max.message.bytes")
    shot("new-topic")
    browser.go(f"{scene.console}#/pipelines")
    browser.shows("bronze", "main")
    shot("pipelines")
    browser.go(f"{scene.console}#/security")
    browser.shows("Security", "h1")
    shot("security")
    browser.go(f"{scene.console}#/?period=hour")
    browser.until(lambda: browser.run("document.querySelectorAll('.plot .line').length") >= 4, "")
    shot("hour")
    browser.go(scene.console)
    browser.until(lambda: browser.run("document.querySelectorAll('.plot .line').length") >= 4, "")
    shot("overview")


def take_all(browser: Browser, scene: Scene, folder: Path) -> None:
    """Takes every page at both sizes in both themes, to be looked at."""
    for theme in ("light", "dark"):
        browser.theme(theme)
        for width, height in ((WIDTH, HEIGHT), PHONE):
            take(browser, scene, folder / f"{theme}-{width}", (width, height))


def take_for_docs(browser: Browser, scene: Scene, folder: Path) -> None:
    take(browser, scene, folder)
    for name, theme, size in (("dark", "dark", (WIDTH, HEIGHT)), ("phone", "light", PHONE)):
        browser.theme(theme)
        browser.call(
            "Emulation.setDeviceMetricsOverride", **SCREEN | dict(zip(SIDES, size, strict=True))
        )
        browser.go(scene.console)
        browser.until(
            lambda: browser.run("document.querySelectorAll('.plot .line').length") >= 4, ""
        )
        time.sleep(0.6)
        browser.picture(folder / f"console-{name}.png", *size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=FOLDER)
    parser.add_argument("--seconds", type=float, default=90.0, help="how long the shop runs first")
    parser.add_argument("--all", action="store_true", help="both sizes and themes of every page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process = PenstockProcess(Path(folder) / "data", {"group.initial.rebalance.delay.ms": 0})
        scene, browser = Scene(process), Browser(Path(folder) / "profile")
        try:
            with open_shop(process):
                scene.ask("GET", "/console/api/overview")
                for _ in range(int(options.seconds / 10)):
                    time.sleep(10)
                    report_pipelines(scene)
                    print(json.dumps(scene.ask("GET", "/console/api/overview")["totals"]))
                (take_all if options.all else take_for_docs)(browser, scene, options.into)
        finally:
            browser.close()
            process.stop()


if __name__ == "__main__":
    main()
