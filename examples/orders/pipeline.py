"""Validates orders, prices them by customer, aggregates by country and hour, and loads them.

    penstock up
    python -m examples.orders.data --brokers localhost:9092 --count 10000
    penstock pipeline run examples/orders/pipeline.py --once
    penstock pipeline status orders
    penstock dlq stats orders.price.dlq

`penstock pipeline status` shows how many orders met the expectations of the stage validate.
Orders that are not valid JSON, lack a field or have no quantity are in `orders.validate.dlq`, those
of unknown customers in `orders.price.dlq`. After adding a customer, redrive them:

    penstock dlq redrive orders.price.dlq --yes
    penstock pipeline run examples/orders/pipeline.py --once
"""

import os
from typing import Any

from penstock.pipelines import (
    Files,
    Latest,
    Pipeline,
    Topic,
    aggregate,
    dedup,
    expect,
    lookup,
    reject,
)

WAREHOUSE = os.environ.get("ORDERS_WAREHOUSE", "orders-warehouse")

pipeline = Pipeline("orders", about="orders, from the shop to the warehouse")


@pipeline.extract(
    "orders",
    schema="id string not null, customer string not null, sku string, quantity int not null, "
    "cents bigint not null, at timestamp not null",
    to=Topic("orders.valid", partitions=2),
    key="customer",
)
@expect("known-sku", "sku like 'sku-%'")
@expect("cheap", "quantity * cents <= 40000")
def validate(orders: Any) -> Any:
    """Keeps only orders that can be priced, without duplicates."""
    orders = reject(orders, "quantity <= 0", "quantity must be positive", error="BadQuantity")
    # After the steps that reject rows: a redriven row is not a duplicate.
    return dedup(orders, "1 day")


@pipeline.enrich(
    tables={"customers": Latest("customers", "customer string, country string, discount int")},
    to=Topic("orders.priced", partitions=2),
    key="customer",
)
def price(orders: Any, customers: Any) -> Any:
    """Adds the customer's country and discount, and the order's total."""
    known = lookup(orders, customers, ["customer"])
    return known.selectExpr(
        "id",
        "customer",
        "country",
        "at",
        "quantity * cents * (100 - discount) div 100 as total_cents",
        "record",
    )


@pipeline.transform(
    "orders.priced",
    to=Topic("orders.totals", partitions=2, compact=True),
    key="concat(country, '/', date_format(window_start, 'yyyy-MM-dd HH'))",
    mode="update",
)
def totals(orders: Any) -> Any:
    """Totals by country and hour; the last record of a key is the current sum."""
    return aggregate(
        orders,
        ["country"],
        window="1 hour",
        event_time="at",
        late="2 days",
        orders="count(*)",
        cents="sum(total_cents)",
    )


@pipeline.load("orders.priced", to=Files(WAREHOUSE, partition_by=("day",)))
def load(orders: Any) -> Any:
    """Writes Parquet by day."""
    return orders.selectExpr("*", "date_format(at, 'yyyy-MM-dd') as day")
