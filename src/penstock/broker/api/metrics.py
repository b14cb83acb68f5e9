"""The node's metric catalogue: every name with its meaning, and the counters the hot path keeps.

Values that somebody else already knows (sizes, offsets, memory) are read at scrape time; only
events are counted here.
"""

from penstock.base.errors import ErrorCode
from penstock.base.metrics import AGE_BUCKETS, Catalogue, Counter, Histogram
from penstock.broker.api.traffic_counters import Traffic
from penstock.cluster.controller.elections import Election
from penstock.cluster.metadata.image import TopicImage


class RouteMetrics:
    """What is counted for each API."""

    __slots__ = ("requests", "seconds")

    def __init__(self, requests: Counter, seconds: Histogram) -> None:
        self.requests = requests
        self.seconds = seconds


class Metrics:
    """Counters by attribute; `catalogue` names and explains them for /metrics."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self._add_requests(self.catalogue)
        self._add_traffic(self.catalogue)
        self._add_trouble(self.catalogue)
        self._add_decisions(self.catalogue)

    def _add_requests(self, add: Catalogue) -> None:
        self._requests = add.add(
            "penstock_requests_total", "counter", "Requests handled, by API.", ("api",)
        )
        self._seconds = add.add(
            "penstock_request_seconds",
            "histogram",
            "Time from a whole request received to its reply handed to the socket, by API.",
            ("api",),
        )
        self.http_requests = add.add(
            "penstock_http_requests_total",
            "counter",
            "Requests to the HTTP door, by route and status.",
            ("route", "status"),
        )
        self.http_seconds = add.add(
            "penstock_http_request_seconds",
            "histogram",
            "Time from a request to the HTTP door to its answer, waiting included, by route.",
            ("route",),
        )

    def _add_traffic(self, add: Catalogue) -> None:
        self.records_in = add.add(
            "penstock_records_in_total", "counter", "Records appended by producers."
        ).counter()
        self.records_out = add.add(
            "penstock_records_out_total",
            "counter",
            "Records sent to consumers. Where a fetch ends in the middle of a segment, estimated "
            "by its bytes.",
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

        ages = add.add(
            "penstock_message_age_seconds",
            "histogram",
            "How old messages are when they leave: from their timestamp to a consumer's fetch (of "
            "each reply, the first batch; of large replies, a hundred a second) or to their "
            "delivery by a queue.",
            ("at",),
            bounds=AGE_BUCKETS,
        )
        self.age_at_fetch = ages.histogram("fetch")
        self.age_noted_ms = 0
        """When that of a stretch was last."""
        self.age_at_delivery = ages.histogram("delivery")

    def _add_trouble(self, add: Catalogue) -> None:
        self._errors = add.add(
            "penstock_errors_total",
            "counter",
            "Partitions of produce and fetch requests that were answered with an error, by API "
            "and Kafka's name of the error.",
            ("api", "error"),
        )
        self._throttles = add.add(
            "penstock_throttles_total",
            "counter",
            "Requests and connections that were put off, by what they were above: a quota by "
            "Kafka's name, the disk's watermark, or a topic's backlog.",
            ("kind",),
        )
        self._throttle_seconds = add.add(
            "penstock_throttle_seconds_total",
            "counter",
            "For how long they were put off, by the same.",
            ("kind",),
        )
        self.peer_errors = add.add(
            "penstock_peer_errors_total",
            "counter",
            "Connections closed because the peer broke the protocol.",
        ).counter()
        self.failed_logins = add.add(
            "penstock_failed_logins_total",
            "counter",
            "Logins refused for a wrong user, password, token or certificate.",
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

    def _add_decisions(self, add: Catalogue) -> None:
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

        self.syncs = add.add(
            "penstock_sync_seconds",
            "histogram",
            "Time that group commits waited for the disk.",
        ).histogram()
        self.loop_lag = add.add(
            "penstock_loop_lag_seconds",
            "histogram",
            "How late timers of the event loop were; measured while somebody scrapes.",
        ).histogram()
        self.traffic = Traffic()
        """By topic; `node.metrics.node_metrics` reads it."""

    def count_delivery(
        self, topic: TopicImage | None, size: int, records: int, age_s: float | None
    ) -> None:
        """A queue has delivered; the age is that of the first record's batch."""
        self.bytes_out.value += size
        self.records_out.value += records
        if topic is not None:
            out = self.traffic[topic.name]
            out.bytes_out += size
            out.records_out += records
        if age_s is not None:
            self.age_at_delivery.observe(age_s)

    def count_error(self, api: str, code: int) -> None:
        """Not on the way of what succeeds."""
        self._errors.counter(api, ErrorCode(code).name).value += 1

    def count_throttle(self, kind: str, seconds: float) -> None:
        """A client was put off. Kinds are few: quotas by Kafka's names, the disk, a backlog."""
        self._throttles.counter(kind).value += 1
        self._throttle_seconds.counter(kind).value += seconds

    def count_election(self, kind: Election) -> None:
        self._elections[kind].value += 1

    def route(self, name: str) -> RouteMetrics:
        return RouteMetrics(self._requests.counter(name), self._seconds.histogram(name))
