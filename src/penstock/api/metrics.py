"""The node's metric catalogue: every name with its meaning, and the counters the hot path keeps.

Values that somebody else already knows (sizes, offsets, memory) are read at scrape time; only
events are counted here.
"""

from penstock.base.metrics import Catalogue, Counter, Histogram
from penstock.cluster.elections import Election


class RouteMetrics:
    """What is counted for each API."""

    __slots__ = ("requests", "seconds")

    def __init__(self, requests: Counter, seconds: Histogram) -> None:
        self.requests = requests
        self.seconds = seconds


class Metrics:
    """Counters by attribute; `catalogue` names and explains them for /metrics."""

    def __init__(self) -> None:
        self.catalogue = add = Catalogue()
        self._requests = add.add(
            "penstock_requests_total", "counter", "Requests handled, by API.", ("api",)
        )
        self._seconds = add.add(
            "penstock_request_seconds",
            "histogram",
            "Time from a whole request received to its reply handed to the socket, by API.",
            ("api",),
        )
        self.records_in = add.add(
            "penstock_records_in_total", "counter", "Records appended by producers."
        ).counter()
        self.bytes_in = add.add(
            "penstock_bytes_in_total", "counter", "Bytes of record batches appended by producers."
        ).counter()
        self.bytes_out = add.add(
            "penstock_bytes_out_total", "counter", "Bytes of record batches sent to consumers."
        ).counter()
        self.bytes_replicated = add.add(
            "penstock_bytes_replicated_total",
            "counter",
            "Bytes of record batches sent to followers.",
        ).counter()
        self.duplicates = add.add(
            "penstock_duplicate_batches_total",
            "counter",
            "Batches that an idempotent producer sent again, answered with their first offset.",
        ).counter()
        self.peer_errors = add.add(
            "penstock_peer_errors_total",
            "counter",
            "Connections closed because the peer broke the protocol.",
        ).counter()
        self.internal_errors = add.add(
            "penstock_internal_errors_total",
            "counter",
            "Connections closed because of an unexpected error of ours: each one is a bug.",
        ).counter()
        self.cold_reads = add.add(
            "penstock_cold_reads_total",
            "counter",
            "Fetches that had to wait for the disk because the page cache did not hold the data.",
        ).counter()
        rebalances = add.add(
            "penstock_rebalances_total",
            "counter",
            "New generations of classic groups, and new assignments of consumer groups' members.",
            ("protocol",),
        )
        self.generations = rebalances.counter("classic")
        self.assignments = rebalances.counter("consumer")
        chosen = add.add(
            "penstock_elections_total",
            "counter",
            "Leaders elected by this node, as controller or when asked: clean ones have everything "
            "committed; last-known and unclean ones may lack some of it.",
            ("kind",),
        )
        self._elections: dict[Election, Counter] = {
            kind: chosen.counter(kind.value) for kind in Election if kind is not Election.NONE
        }
        self.connections_refused = add.add(
            "penstock_connections_refused_total",
            "counter",
            "Connections refused because a connection limit was reached.",
        ).counter()

    def count_election(self, kind: Election) -> None:
        self._elections[kind].value += 1

    def route(self, name: str) -> RouteMetrics:
        return RouteMetrics(self._requests.counter(name), self._seconds.histogram(name))
