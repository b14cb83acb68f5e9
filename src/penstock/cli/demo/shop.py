"""Producers and consumers of the demo: shoppers, billing, a slow analyst, packers and mailers.

    shoppers ──▶ orders ──▶ billing ──▶ shipments (queue, priorities) ──▶ packers ──▶ shipments.dlq
                   │           └──────▶ emails (queue, delays) ─────────▶ mailers ──▶ emails.dlq
                   └──────▶ analytics (always a little behind)

Some customers order far more than others, so a partition is hot. Billing pauses at times, so that
its lag rises and falls. Packers and mailers fail at times: some messages succeed on a retry, others
become dead letters.
"""

import asyncio
import random

from penstock import Client, Message, Registry, Worker

ORDERS, SHIPMENTS, EMAILS = "orders", "shipments", "emails"
CUSTOMERS = [f"customer-{number:03}" for number in range(200)]
ITEMS = {"apple": 40, "pear": 55, "melon": 320, "coffee": 899, "lamp": 2_450, "bicycle": 39_900}
CITIES = ("Basel", "Lyon", "Ghent", "Turin", "Graz", "Porto")
EMAIL_DELAY = "20s"
PRIORITIES = {"standard": 2, "express": 8}

ORDER_V1 = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "customer", "type": "string"},
    {"name": "item", "type": "string"}, {"name": "cents", "type": "long"}]}"""
ORDER_V2 = ORDER_V1.replace("]}", ', {"name": "speed", "type": "string", "default": "standard"}]}')
EMAIL = """{"type": "object", "required": ["to", "order"],
    "properties": {"to": {"type": "string"}, "order": {"type": "integer"}}}"""


class Shop:
    """All producers and consumers of the demo."""

    def __init__(self, brokers: str, http: str, rate: float, failures: float) -> None:
        """`rate`: orders per second; `failures`: share of messages that fail at first."""
        self.brokers = brokers
        self.http = http
        self.rate = rate
        self.failures = failures
        self.ordered = 0
        self.packed = 0
        self.mailed = 0
        self._random = random.Random(7)

    async def open(self) -> None:
        """Creates topics and schemas."""
        async with Client(self.brokers) as client:
            await client.create_topic(ORDERS, 6)
            await client.create_topic(SHIPMENTS, 3, configs={"queue.order": "key"})
            await client.create_topic(EMAILS, 2)
        registry = Registry(self.http)
        for subject, schema, kind in (
            ("orders-value", ORDER_V1, "AVRO"),
            ("orders-value", ORDER_V2, "AVRO"),
            ("emails-value", EMAIL, "JSON"),
        ):
            await asyncio.to_thread(registry.register, subject, schema, kind)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with Client(self.brokers) as client, asyncio.TaskGroup() as people:
            people.create_task(self._shop(client))
            people.create_task(self._bill(client))
            people.create_task(self._analyse(client))
            people.create_task(self._work(self._packers()))
            people.create_task(self._work(self._mailers()))

    # -- those who read and write logs -------------------------------------------------------

    async def _shop(self, client: Client) -> None:
        """Publishes orders in small bursts, at a rate that varies over time."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            due = int((loop.time() - began) * self.rate) - self.ordered
            orders = [self._order() for _ in range(max(0, due))]
            await asyncio.gather(
                *(
                    client.publish(
                        ORDERS, one, key=str(one["customer"]), headers={"from": self._source()}
                    )
                    for one in orders
                )
            )
            await asyncio.sleep(0.2)

    def _order(self) -> dict[str, object]:
        self.ordered += 1
        # The first customers buy most: one partition is hot.
        customer = CUSTOMERS[min(int(self._random.expovariate(0.12)), len(CUSTOMERS) - 1)]
        item = self._random.choice(list(ITEMS))
        return {
            "id": self.ordered,
            "customer": customer,
            "item": item,
            "cents": ITEMS[item] * self._random.randint(1, 3),
            "speed": "express" if self._random.random() < 0.2 else "standard",
        }

    def _source(self) -> str:
        return self._random.choice(("web", "app", "phone"))

    async def _bill(self, client: Client) -> None:
        """Bills orders without lag, except during its pauses."""
        seen = 0
        async with client.consume(ORDERS, "billing") as orders:
            async for order in orders:
                found = order.json()
                await asyncio.gather(
                    client.publish(
                        SHIPMENTS,
                        {"order": found["id"], "item": found["item"], "to": self._city()},
                        key=order.key,
                        priority=PRIORITIES[found["speed"]],
                    ),
                    client.publish(
                        EMAILS,
                        {"to": f"{found['customer']}@example.com", "order": found["id"]},
                        delay=EMAIL_DELAY,
                    ),
                )
                seen += 1
                if seen % int(self.rate * 30 + 1) == 0:
                    await asyncio.sleep(8)

    def _city(self) -> str:
        return self._random.choice(CITIES)

    async def _analyse(self, client: Client) -> None:
        """Reads orders alternately slower and faster than they arrive."""
        pause = 1.6 / self.rate
        read = 0
        async with client.consume(ORDERS, "analytics") as orders:
            async for _ in orders:
                read += 1
                is_slow = read // int(self.rate * 60 + 1) % 2 == 0
                await asyncio.sleep(pause if is_slow else pause / 8)

    # -- those who work off queues -----------------------------------------------------------

    def _packers(self) -> Worker:
        worker = Worker(self.brokers, group="packers", grace=1.0)

        @worker.task(SHIPMENTS, retries=3, backoff="1s", concurrency=8, no_retry=[ValueError])
        async def pack(message: Message) -> None:
            await asyncio.sleep(self._random.uniform(0.01, 0.08))
            luck = self._random.random() / max(self.failures, 1e-9)
            if luck < 0.3:
                raise ValueError(f"unknown postcode for {message.json()['to']}")
            if luck < 1:
                raise TimeoutError("the carrier did not answer")
            self.packed += 1

        return worker

    def _mailers(self) -> Worker:
        worker = Worker(self.brokers, group="mailers", grace=1.0)

        @worker.task(EMAILS, retries=1, backoff="2s", concurrency=16)
        async def mail(message: Message) -> None:
            await asyncio.sleep(0.02)
            if self._random.random() < self.failures:
                raise ConnectionError("the mail server hung up")
            self.mailed += 1

        return worker

    async def _work(self, worker: Worker) -> None:
        serving = asyncio.ensure_future(worker.serve())
        try:
            await asyncio.shield(serving)
        finally:
            worker.stop()
            worker.stop()
            await asyncio.gather(serving, return_exceptions=True)
