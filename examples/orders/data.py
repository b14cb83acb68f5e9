"""Generated orders and customers, and the expected results computed without Spark.

`python -m examples.orders.data --brokers localhost:9092 --count 10000` writes them to the topics.
"""

import argparse
import json
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock import Outgoing, SyncClient

HOUR_MS = 3_600_000
COUNTRIES = ("de", "fr", "it", "pl", "pt")
CUSTOMERS = 200
UNKNOWN = 5
"""Customers that order before they are in the topic `customers`."""


@dataclass(frozen=True)
class Order:
    """Record of the topic `orders`."""

    key: bytes
    value: bytes
    message_id: str
    at_ms: int


@dataclass
class Expected:
    """Expected results of the pipeline."""

    priced: dict[str, int] = field(default_factory=dict)
    """Total of each order."""
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Orders and cents by country and hour."""
    invalid: int = 0
    unknown: int = 0


def customers(*, with_unknown: bool = False) -> dict[str, tuple[str, int]]:
    """Country and discount by customer."""
    count = CUSTOMERS if with_unknown else CUSTOMERS - UNKNOWN
    return {f"c{n:03}": (COUNTRIES[n % len(COUNTRIES)], n % 4 * 5) for n in range(count)}


def orders(count: int, seed: int, start_ms: int) -> list[Order]:
    """Orders of six hours; about 2 % are invalid, and 2 % are duplicates."""
    draw = random.Random(seed)
    made: list[Order] = []
    for number in range(count):
        at_ms = start_ms + number * 6 * HOUR_MS // count
        customer = f"c{draw.randrange(CUSTOMERS):03}"
        order = {
            "id": f"o{seed}-{number}",
            "customer": customer,
            "sku": f"sku-{draw.randrange(50)}",
            "quantity": draw.randrange(1, 6),
            "cents": draw.randrange(100, 10_000),
            "at": datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(),
        }
        fate = draw.random()
        value = json.dumps(order)
        if fate < 0.005:
            value = value[:-10]
        elif fate < 0.01:
            value = json.dumps({**order, "quantity": None})
        elif fate < 0.02:
            value = json.dumps({**order, "quantity": 0})
        one = Order(customer.encode(), value.encode(), f"m{seed}-{number}", at_ms)
        made.append(one)
        if fate > 0.98:
            made.append(one)
    return made


def expected(given: Iterable[Order], known: dict[str, tuple[str, int]]) -> Expected:
    """Reference results: one process, one order after the other."""
    result = Expected()
    seen: set[str] = set()
    for one in given:
        try:
            order = json.loads(one.value)
        except ValueError:
            result.invalid += 1
            continue
        if not order["quantity"]:
            result.invalid += 1
            continue
        if one.message_id in seen:
            continue
        seen.add(one.message_id)
        if order["customer"] not in known:
            result.unknown += 1
            continue
        country, discount = known[order["customer"]]
        cents = order["quantity"] * order["cents"] * (100 - discount) // 100
        result.priced[order["id"]] = cents
        hour = datetime.fromisoformat(order["at"]).strftime("%Y-%m-%d %H")
        orders_before, cents_before = result.totals.get(f"{country}/{hour}", (0, 0))
        result.totals[f"{country}/{hour}"] = (orders_before + 1, cents_before + cents)
    return result


def send_customers(client: SyncClient, known: dict[str, tuple[str, int]]) -> None:
    client.publish_many(
        "customers",
        [
            Outgoing(payload={"customer": name, "country": country, "discount": discount}, key=name)
            for name, (country, discount) in known.items()
        ],
    )


def send_orders(client: SyncClient, given: Iterable[Order]) -> None:
    client.publish_many(
        "orders",
        [
            Outgoing(payload=one.value, key=one.key, headers={"message_id": one.message_id})
            for one in given
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill the topics orders and customers.")
    parser.add_argument("--brokers", default="localhost:9092")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start_ms = int(time.time() * 1000) - 6 * HOUR_MS
    with SyncClient(arguments.brokers) as client:
        send_customers(client, customers())
        send_orders(client, orders(arguments.count, arguments.seed, start_ms))
    print(f"{arguments.count} orders sent")


if __name__ == "__main__":
    main()
