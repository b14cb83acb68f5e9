"""`python -m bench.scrape`: what a scrape of a large node costs, and what others notice of it.

A broker with 1,000 partitions and 100 groups that are behind is scraped while a client sends small
requests at a steady rate, in windows with scrapes and without in turns, so that a noisy neighbour
touches both. Prints the time of a scrape and the 99th percentile of the requests' latency in both
kinds of windows, and exits with 1 if a target is missed: 200 ms, and 10 % more.

    python -m bench.scrape [--rounds N] [--seconds S] [--every S] [--rate N]
"""

import argparse
import asyncio
import http.client
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from penstock.client.admin import Admin
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.committed import commit_offsets
from penstock.client.lookup import LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.client.producer import Producer, ProducerConfig
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from tests.brokers import PenstockProcess

TOPICS, PARTITIONS, GROUPS = 10, 100, 100
SCRAPE_MS_MAX = 200.0
P99_RISE_MAX = 0.10
PATIENCE_S = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.scrape", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="windows of each kind")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a window")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between scrapes")
    parser.add_argument("--rate", type=int, default=300, help="requests a second")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-scrape-"))
    broker = PenstockProcess(folder / "data", {"offsets.topic.num.partitions": 10})
    try:
        return asyncio.run(measure(broker, options))
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def measure(broker: PenstockProcess, options: argparse.Namespace) -> int:
    random = SystemRandom()
    async with Cluster(random, parse_brokers(broker.bootstrap)) as cluster:
        await prepare(cluster)
        scraper = Scraper(broker.http)
        await asyncio.to_thread(scraper.until_watched)
        times = sorted([await asyncio.to_thread(scraper.scrape) for _ in range(50)])
        size = scraper.size
        latencies: dict[bool, list[float]] = {False: [], True: []}
        ratios = []
        for number in range(options.rounds):
            # Which comes first changes, so that a drift of the machine favours neither.
            pair: dict[bool, list[float]] = {}
            for is_scraped in (False, True) if number % 2 else (True, False):
                pair[is_scraped] = await window(cluster, scraper, options, is_scraped)
                latencies[is_scraped] += pair[is_scraped]
            ratios.append(percentile(pair[True], 0.99) / percentile(pair[False], 0.99))
            print(
                f"round {number + 1}: p99 {percentile(pair[False], 0.99):.2f} ms without, "
                f"{percentile(pair[True], 0.99):.2f} ms with scrapes",
                flush=True,
            )
    return tell(times, size, latencies, ratios, options)


async def prepare(cluster: Cluster) -> None:
    """Topics with records, and groups that have read some of them."""
    admin = Admin(cluster)
    names = [f"topic-{number:02}" for number in range(TOPICS)]
    for name in names:
        await admin.create_topic(name, PARTITIONS)
    await admin.create_topic("ping", 1)
    async with Producer(SystemClock(), SystemRandom(), cluster, ProducerConfig()) as producer:
        sends = [
            await producer.send(name, b"x" * 100, partition=partition)
            for name in names
            for partition in range(PARTITIONS)
            for _ in range(3)
        ]
        await producer.flush()
        for send in sends:
            await send
    for number in range(GROUPS):
        name = names[number % TOPICS]
        places = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
        await commit_offsets(cluster, f"group-{number:03}", dict.fromkeys(places, 1))


class Scraper:
    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        self.size = 0

    def scrape(self) -> float:
        """One scrape as Prometheus makes it; milliseconds."""
        connection = http.client.HTTPConnection(self._address, timeout=30)
        began = time.perf_counter()
        connection.request("GET", "/metrics", headers={"accept": "application/openmetrics-text"})
        body = connection.getresponse().read()
        took = (time.perf_counter() - began) * 1000
        connection.close()
        self.size = len(body)
        self._groups = body.count(b"\npenstock_group_lag{")
        return took

    def until_watched(self) -> None:
        """Lag is looked at only while somebody scrapes."""
        deadline = time.monotonic() + PATIENCE_S
        while self.scrape() and self._groups < GROUPS:
            if time.monotonic() > deadline:
                sys.exit(f"only {self._groups} groups are told of")
            time.sleep(0.5)


async def window(
    cluster: Cluster, scraper: Scraper, options: argparse.Namespace, is_scraped: bool
) -> list[float]:
    """The latency of every request, in milliseconds, from when it was due."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    scraping = loop.create_task(scrape_on(scraper, options.every)) if is_scraped else None
    count = int(options.seconds * options.rate)
    waiting = []
    for number in range(count):
        due = began + number / options.rate
        await asyncio.sleep(max(0.0, due - loop.time()))
        waiting.append(loop.create_task(ping(cluster, due)))
    found = await asyncio.gather(*waiting)
    if scraping is not None:
        scraping.cancel()
        await asyncio.gather(scraping, return_exceptions=True)
    return found


async def ping(cluster: Cluster, due: float) -> float:
    loop = asyncio.get_running_loop()
    await list_offsets(cluster, {TopicPartition("ping", 0): LATEST})
    return (loop.time() - due) * 1000


async def scrape_on(scraper: Scraper, every_s: float) -> None:
    await asyncio.sleep(every_s / 2)
    while True:
        await asyncio.to_thread(scraper.scrape)
        await asyncio.sleep(every_s)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def tell(
    times: list[float],
    size: int,
    latencies: dict[bool, list[float]],
    ratios: list[float],
    options: argparse.Namespace,
) -> int:
    without, scraped = (percentile(latencies[kind], 0.99) for kind in (False, True))
    rise = statistics.median(ratios) - 1
    print(
        f"\nscrape of {TOPICS * PARTITIONS:,} partitions, {GROUPS} groups ({size >> 10} KiB): "
        f"median {statistics.median(times):.1f} ms, p99 {percentile(times, 0.99):.1f} ms, "
        f"largest {times[-1]:.1f} ms"
    )
    for share in (0.5, 0.99, 0.999):
        print(
            f"requests p{share * 100:g}: {percentile(latencies[False], share):.2f} ms without, "
            f"{percentile(latencies[True], share):.2f} ms with a scrape every {options.every:g} s"
        )
    print(
        f"p99 over all windows {without:.2f} and {scraped:.2f} ms; median of the rounds' ratios "
        f"{rise:+.1%}"
    )
    is_met = percentile(times, 0.99) < SCRAPE_MS_MAX and rise <= P99_RISE_MAX
    print("targets met" if is_met else "a target was missed")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
