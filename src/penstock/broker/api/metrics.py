"""Metric catalogue of the node: every name with its meaning, and the counters of the hot path.

Only events are counted here. Values that other objects have (sizes, offsets, memory) are read at
scrape time.

Counters of records and bytes in and out of each topic, updated by batch and by reply. Owns four
counters for each topic with traffic. The first `NAMED_MAX` topics have separate counters, others
share those of `OTHERS`. They keep sharing them until they are deleted, because a counter that
changed its name would seem to decrease. A deleted topic frees its counters for another one.

The hot path does `traffic[topic].bytes_in += n`, one dict lookup.
"""

from collections.abc import Container, Iterator

from penstock.base.errors import ErrorCode
from penstock.base.metrics import AGE_BUCKETS, Catalogue, Counter, Histogram
from penstock.cluster.controller.leader_elections import Election
from penstock.cluster.metadata.image import TopicImage

NAMED_MAX = 200
TOPICS_MAX = 50_000
"""Limits topics in memory: deleted ones are removed only at a scrape, which may be rare."""
OTHERS = "(others)"


class TopicTraffic:
    """Counters of a topic."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_out: float = 0


class Traffic(dict[str, TopicTraffic]):
    """Counters by topic, created on first use."""

    def __init__(self) -> None:
        super().__init__()
        self.others = TopicTraffic()
        self._named = 0

    def __missing__(self, topic: str) -> TopicTraffic:
        if len(self) >= TOPICS_MAX:
            return self.others
        if self._named < NAMED_MAX:
            self._named += 1
            self[topic] = TopicTraffic()
        else:
            self[topic] = self.others
        return self[topic]

    def forget_all_but(self, topics: Container[str]) -> None:
        for gone in [topic for topic in self if topic not in topics]:
            if self.pop(gone) is not self.others:
                self._named -= 1

    def named(self) -> Iterator[tuple[str, TopicTraffic]]:
        """Yields topics with separate counters, then the shared ones if there are any."""
        has_others = self.others.records_in > 0 or self.others.bytes_out > 0
        for topic, counts in self.items():
            if counts is not self.others:
                yield topic, counts
        if has_others:
            yield OTHERS, self.others


class RouteMetrics:
    """Metrics of one API."""

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
            "Time from the receipt of a whole request to the write of its reply, by API.",
            ("api",),
        )
        self.http_requests = add.add(
            "penstock_http_requests_total",
            "counter",
            "HTTP requests, by route and status.",
            ("route", "status"),
        )
        self.http_seconds = add.add(
            "penstock_http_request_seconds",
            "histogram",
            "Time from an HTTP request to its response, including waits, by route.",
            ("route",),
        )

    def _add_traffic(self, add: Catalogue) -> None:
        self.records_in = add.add(
            "penstock_records_in_total", "counter", "Records appended by producers."
        ).counter()
        self.records_out = add.add(
            "penstock_records_out_total",
            "counter",
            "Records sent to consumers; estimated from bytes if a fetch ends in the middle of a "
            "segment.",
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
            "Duplicate batches of idempotent producers, answered with their original offset.",
        ).counter()

        ages = add.add(
            "penstock_message_age_seconds",
            "histogram",
            "Age of messages from their timestamp to a consumer's fetch (the first batch of each "
            "reply, at most 100 large replies per second) or to their delivery by a queue.",
            ("at",),
            bounds=AGE_BUCKETS,
        )
        self.age_at_fetch = ages.histogram("fetch")
        self.age_noted_ms = 0
        """Time of the last age of a large reply."""
        self.age_at_delivery = ages.histogram("delivery")

    def _add_trouble(self, add: Catalogue) -> None:
        self._errors = add.add(
            "penstock_errors_total",
            "counter",
            "Partitions of produce and fetch requests answered with an error, by API and Kafka's "
            "name of the error.",
            ("api", "error"),
        )
        self._throttles = add.add(
            "penstock_throttles_total",
            "counter",
            "Throttled requests and connections, by cause: a quota by Kafka's name, the disk's "
            "watermark, or a topic's backlog.",
            ("kind",),
        )
        self._throttle_seconds = add.add(
            "penstock_throttle_seconds_total",
            "counter",
            "Throttle time of requests and connections, by cause.",
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
            "Connections closed because of an internal error; each one is a bug.",
        ).counter()
        self.cold_reads = add.add(
            "penstock_cold_reads_total",
            "counter",
            "Fetches that waited for the disk because the data was not in the page cache.",
        ).counter()

    def _add_decisions(self, add: Catalogue) -> None:
        rebalances = add.add(
            "penstock_rebalances_total",
            "counter",
            "New generations of classic groups, and new assignments of members of consumer groups.",
            ("protocol",),
        )
        self.generations = rebalances.counter("classic")
        self.assignments = rebalances.counter("consumer")
        chosen = add.add(
            "penstock_elections_total",
            "counter",
            "Leaders elected by this node, as controller or on request. A clean leader has all "
            "committed records; a last-known or unclean one may lack some.",
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
            "Time of disk syncs by group commits.",
        ).histogram()
        self.loop_lag = add.add(
            "penstock_loop_lag_seconds",
            "histogram",
            "Delay of event loop timers, measured while metrics are scraped.",
        ).histogram()
        self.traffic = Traffic()
        """Traffic by topic; `node.metrics.node_metrics` reads it."""

    def count_delivery(
        self, topic: TopicImage | None, size: int, records: int, age_s: float | None
    ) -> None:
        """Counts a delivery by a queue; the age is that of the first record's batch."""
        self.bytes_out.value += size
        self.records_out.value += records
        if topic is not None:
            out = self.traffic[topic.name]
            out.bytes_out += size
            out.records_out += records
        if age_s is not None:
            self.age_at_delivery.observe(age_s)

    def count_error(self, api: str, code: int) -> None:
        """Counts an error; not called for successful requests."""
        self._errors.counter(api, ErrorCode(code).name).value += 1

    def count_throttle(self, kind: str, seconds: float) -> None:
        """Counts a throttled client. Kinds are few: Kafka's quotas, the disk, a backlog."""
        self._throttles.counter(kind).value += 1
        self._throttle_seconds.counter(kind).value += seconds

    def count_election(self, kind: Election) -> None:
        self._elections[kind].value += 1

    def route(self, name: str) -> RouteMetrics:
        return RouteMetrics(self._requests.counter(name), self._seconds.histogram(name))
