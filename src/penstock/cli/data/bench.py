"""`penstock bench`: quick load test of a cluster with Penstock's own client.

Creates a temporary topic, produces, consumes everything, checks the count, and prints rates and
latencies. It measures client, network and broker together: suited to a quick check and to comparing
settings, not to comparing brokers (use `make bench`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.data.produce import ACKS, acks_option, codec_option, linger_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_table,
    show_bytes,
    show_count,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from penstock.client.producer.producer import ProducerConfig

_CHUNK = 500


@dataclass(frozen=True)
class Result:
    phase: str
    records: int
    bytes: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.seconds


@click.command("bench")
@click.option(
    "-n",
    "--records",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Number of records.",
)
@click.option(
    "-s",
    "--size",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="Bytes per record.",
)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Partitions of the temporary topic.",
)
@codec_option
@acks_option
@linger_option
@click.option(
    "--batch-bytes",
    type=click.IntRange(1_000, 900_000),
    default=262_144,
    show_default=True,
    help="Size at which a batch is sent.",
)
@click.option("-t", "--topic", help="Use and keep this topic [a temporary one].")
@brokers_option
@format_option
def bench(
    records: int,
    size: int,
    partitions: int,
    codec: str,
    acks: str,
    linger_ms: float,
    batch_bytes: int,
    topic: str | None,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Produce and consume a quick load; print rates and latencies.

    Uses a temporary topic, which is deleted afterwards.

    \b
    penstock bench
    penstock bench -n 1000000 -s 1000 -p 6 -z lz4
    """

    async def work(session: CommandSession) -> list[Result]:
        from penstock.client.admin.admin import Admin
        from penstock.client.producer.producer import ProducerConfig
        from penstock.wire.compression import Codec

        config = ProducerConfig(
            acks=ACKS[acks],
            codec=Codec[codec.upper()],
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
        )
        admin = Admin(session.cluster)
        name = topic or f"penstock-bench-{session.random.random_bytes(4).hex()}"
        if topic is None:
            await admin.create_topic(name, partitions)
        try:
            starts = await _ends(session, name)
            produced = await _produce(session, name, config, records, size)
            consumed = await _consume(session, name, starts, records, size)
        finally:
            if topic is None:
                await admin.delete_topic(name)
        return [produced, consumed]

    _print(run(brokers, work), format)


async def _ends(session: CommandSession, topic: str) -> dict[object, int]:
    from penstock.client.list_offsets import LATEST, list_offsets, partitions_of

    places = await partitions_of(session.cluster, topic)
    found = await list_offsets(session.cluster, dict.fromkeys(places, LATEST))
    return {where: found[where].offset for where in places}


async def _produce(
    session: CommandSession, topic: str, config: ProducerConfig, records: int, size: int
) -> Result:
    import asyncio

    from penstock.cli.terminal.progress import Progress

    loop = asyncio.get_running_loop()
    # Half random, half constant: compresses to about half, like many real payloads.
    value = (session.random.random_bytes((size + 1) // 2) + b"x" * size)[:size]
    latencies: list[float] = []
    watching: set[asyncio.Task[None]] = set()
    started = time.perf_counter()
    with Progress("producing", records) as progress:
        async with session.producer(config) as producer:
            for done in range(0, records, _CHUNK):
                count = min(_CHUNK, records - done)
                at = time.perf_counter()
                for _ in range(count):
                    delivery = producer.offer(topic, value)
                    if delivery is None:
                        delivery = await producer.send(topic, value)

                async def watch(last: object = delivery, sent_at: float = at) -> None:
                    await last  # type: ignore[misc]
                    latencies.append(time.perf_counter() - sent_at)

                task = loop.create_task(watch())
                watching.add(task)
                task.add_done_callback(watching.discard)
                progress.advance(count)
                await asyncio.sleep(0)
            await producer.flush()
            await asyncio.gather(*watching)
    seconds = time.perf_counter() - started
    latencies.sort()
    return Result(
        "produce",
        records,
        records * size,
        seconds,
        _percentile(latencies, 0.50),
        _percentile(latencies, 0.99),
    )


async def _consume(
    session: CommandSession, topic: str, starts: dict[object, int], records: int, size: int
) -> Result:
    from penstock.cli.terminal.progress import Progress
    from penstock.client.consumer.consumer import ConsumerConfig
    from penstock.client.metadata import TopicPartition

    seen = 0
    idle_since = started = time.perf_counter()
    with Progress("consuming", records) as progress:
        async with session.consumer(ConsumerConfig(partition_bytes=4 << 20)) as consumer:
            consumer.assign(
                {where: at for where, at in starts.items() if isinstance(where, TopicPartition)}
            )
            while seen < records:
                count = 0
                for fetched in await consumer.fetch():
                    for columns in fetched.columns():
                        count += len(columns)
                seen += count
                progress.advance(count)
                if count:
                    idle_since = time.perf_counter()
                elif time.perf_counter() - idle_since > 10:
                    raise UserError(
                        f"only {seen:,} of {records:,} records came back; see the broker's log"
                    )
    return Result("consume", seen, seen * size, time.perf_counter() - started)


def _percentile(ordered: list[float], share: float) -> float | None:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000 if ordered else None


def _print(results: list[Result], format: OutputFormat) -> None:
    if format.is_data:
        print_data(
            [
                {
                    "phase": r.phase,
                    "records": r.records,
                    "seconds": round(r.seconds, 4),
                    "records_per_s": round(r.records_per_s, 1),
                    "bytes_per_s": round(r.bytes_per_s, 1),
                    "p50_ms": None if r.p50_ms is None else round(r.p50_ms, 3),
                    "p99_ms": None if r.p99_ms is None else round(r.p99_ms, 3),
                }
                for r in results
            ],
            format,
        )
        return
    print_table(
        ["phase", "records ", "seconds ", "records/s ", "bytes/s ", "p50 ms ", "p99 ms "],
        [
            (
                r.phase,
                show_count(r.records),
                f"{r.seconds:.2f}",
                show_count(r.records_per_s),
                show_bytes(r.bytes_per_s),
                "-" if r.p50_ms is None else f"{r.p50_ms:.1f}",
                "-" if r.p99_ms is None else f"{r.p99_ms:.1f}",
            )
            for r in results
        ],
    )
