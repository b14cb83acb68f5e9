"""Measurements of groups and transactions: coordinators' rate and CPU per request and commit.

As in `measures`: each takes a running broker, returns figures by key, and deletes the topics it
creates.
"""

from collections.abc import Callable

from bench import load, proc
from bench.measures import GB, Figures, Sizes, settle
from bench.members import Member, Prepared, members
from bench.sides import Process, topic

CONNECTIONS = 16
IN_FLIGHT = 16
"""Requests on each connection."""
PARTITIONS = 10
COMMIT_INTERVAL_MS = 100
TXN_PARTITIONS = 6


def groups(process: Process, sizes: Sizes) -> Figures:
    """Heartbeats of both protocols, and commits of one offset and of several."""
    figures: Figures = {}
    with topic(process.bootstrap, PARTITIONS) as name:
        with members(process.bootstrap, name, CONNECTIONS, Member.join_classic) as classic:
            figures |= _repeated(process, sizes, classic, Member.heartbeat, "heartbeat")
            for count in (1, PARTITIONS):
                figures |= _repeated(
                    process,
                    sizes,
                    classic,
                    lambda member, count=count: member.commit(count),  # type: ignore[misc]
                    f"commit_{count}",
                )
        with members(process.bootstrap, name, CONNECTIONS, Member.join_consumer) as modern:
            figures |= _repeated(
                process, sizes, modern, Member.consumer_heartbeat, "consumer_heartbeat"
            )
    return figures


def _repeated(
    process: Process,
    sizes: Sizes,
    joined: list[Member],
    prepare: Callable[[Member], Prepared],
    key: str,
) -> Figures:
    """Rate and broker CPU of a request, repeated for each member."""
    prepared = [prepare(member) for member in joined]
    load.pipe(process.bootstrap, prepared, sizes.requests // 3, IN_FLIGHT)
    settle()
    with proc.watched(process.pid) as used:
        seconds = load.pipe(process.bootstrap, prepared, sizes.requests, IN_FLIGHT)
    return {
        f"{key}_rate": sizes.requests / seconds,
        f"{key}_cpu": used.cpu_s / sizes.requests * 1e6,
    }


def txns(process: Process, size: int, sizes: Sizes) -> Figures:
    """Transactional producer at full speed that commits every 100 ms."""
    count = sizes.messages(size)
    with topic(process.bootstrap, TXN_PARTITIONS) as name:
        settings = {"transactional.id": name, **load.TXNS}
        for messages in (count // 10, count):
            settle(sizes)
            with proc.watched(process.pid) as used:
                done = load.run(
                    "txns",
                    process.bootstrap,
                    name,
                    TXN_PARTITIONS,
                    messages,
                    size,
                    pace=COMMIT_INTERVAL_MS,
                    settings=settings,
                )
    rate = done["messages"] / done["seconds"]
    return {
        f"txns_{size}_rate": rate,
        f"txns_{size}_mb": rate * size / 1e6,
        f"txns_{size}_cpu": used.cpu_s / (count * size / GB),
        f"txns_{size}_commits": done["commits"] / done["seconds"],
        f"txns_{size}_commit_ms": done["commit_ms"],
    }
