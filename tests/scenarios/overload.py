"""Producers of a steady load, as a process of their own: `python -m tests.scenarios.overload`.

With a window each connection keeps so many requests under way and no more: what comes back is what
the broker can do. With a rate, requests are sent by the clock, answered or not, as by clients that
know nothing of each other; what a connection cannot take is lost. Prints one line of JSON.
"""

import argparse
import asyncio
import json
import struct

from bench import probe

TICK_SECONDS = 0.01
VALUE_BYTES = 1_000
ANSWER_BYTES = 4 + 4 + 4 + 2 + 4 + 4 + 2 + 8 + 8 + 8 + 4
"""Of a Produce v7 with one topic and one partition, without the topic's name."""


class Tally:
    """Counts of offered, sent and answered records."""

    def __init__(self) -> None:
        self.offered = self.sent = self.acked = self.failed = self.lost = 0


class Producer(asyncio.Protocol):
    """One connection."""

    def __init__(self, topic: str, window: int, tally: Tally) -> None:
        self._frame = probe.produce_frame(topic, bytes(VALUE_BYTES))
        self._answer_bytes = ANSWER_BYTES + len(topic.encode())
        self._window = window
        self._tally = tally
        self._unread = b""
        self._is_full = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.offer(self._window)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tally.lost += 1

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False

    def offer(self, count: int) -> None:
        self._tally.offered += count
        if count and not self._is_full:
            self._tally.sent += count
            self._transport.write(self._frame * count)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data
        count = len(data) // self._answer_bytes
        for at in range(0, count * self._answer_bytes, self._answer_bytes):
            (code,) = struct.unpack_from(">h", data, at + self._answer_bytes - 30)
            self._tally.failed += code != 0
        self._tally.acked += count
        self._unread = data[count * self._answer_bytes :]
        if self._window:
            self.offer(count)

    def close(self) -> None:
        self._transport.abort()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    for option in ("connections", "window", "rate"):
        parser.add_argument(f"--{option}", type=int, default=0)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    host, _, port = given.bootstrap.rpartition(":")
    loop, tally = asyncio.get_running_loop(), Tally()
    producers = [
        (
            await loop.create_connection(
                lambda: Producer(given.topic, given.window, tally), host, int(port)
            )
        )[1]
        for _ in range(given.connections)
    ]
    # The first third is for warming up.
    began = loop.time()
    warm_at = began + given.seconds / 3
    acked_before = None
    while (now := loop.time()) < began + given.seconds:
        if acked_before is None and now >= warm_at:
            acked_before, measured_from = tally.acked, now
        due = int((now - began) * given.rate) - tally.offered if given.rate else 0
        share = due // len(producers)
        for producer in producers if share else ():
            producer.offer(share)
        await asyncio.sleep(TICK_SECONDS)
    assert acked_before is not None
    goodput = (tally.acked - acked_before) / (loop.time() - measured_from)
    told = {name: value for name, value in vars(tally).items() if name != "lost"}
    print(json.dumps({"goodput": goodput, **told, "lost": tally.lost}), flush=True)
    for producer in producers:
        producer.close()


if __name__ == "__main__":
    asyncio.run(main())
