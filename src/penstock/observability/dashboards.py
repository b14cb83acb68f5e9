"""The four dashboards: overview, topics and groups, queues and dead letters, cluster.

Each opens with the numbers that should be zero, then rates, then times. Rates are over Grafana's
`$__rate_interval`, so they fit whatever scrape interval is set.
"""

from penstock.observability.panels import Dashboard, Panel, Query

GROUPS = 'group=~"$group",topic=~"$topic"'


def rate(selector: str, by: str = "") -> str:
    grouped = f"sum by ({by}) " if by else "sum "
    return f"{grouped}(rate({selector}[$__rate_interval]))"


def quantile(share: float, histogram: str, by: str = "", labels: str = "") -> str:
    names = f"le, {by}" if by else "le"
    buckets = f"rate({histogram}_bucket{labels}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({names}) ({buckets}))"


def number(title: str, meaning: str, expression: str, *, bad_from: float | None = None) -> Panel:
    return Panel(title, meaning, [Query(expression)], width=4, is_number=True, bad_from=bad_from)


OVERVIEW = Dashboard(
    "overview",
    "Penstock / Overview",
    [
        number("Nodes", "Nodes that answer a scrape.", "count(penstock_fenced)"),
        number(
            "Without a leader",
            "Partitions that can be neither written nor read.",
            "max(penstock_partitions_leaderless)",
            bad_from=1,
        ),
        number(
            "Under-replicated",
            "Partitions that lack an in-sync replica.",
            "sum(penstock_partitions_under_replicated)",
            bad_from=1,
        ),
        number(
            "Dead letters",
            "Letters that were neither redriven nor purged.",
            "sum(penstock_dead_letters) or vector(0)",
            bad_from=1,
        ),
        number(
            "Largest lag",
            "Records behind, of the partition of a group that is furthest behind.",
            "max(penstock_group_partition_lag) or vector(0)",
        ),
        number("Connections", "Kafka connections.", "sum(penstock_connections)"),
        Panel(
            "Records in and out",
            "Appended by producers and sent to consumers, a second.",
            [
                Query(rate("penstock_records_in_total"), "in"),
                Query(rate("penstock_records_out_total"), "out"),
            ],
            unit="cps",
        ),
        Panel(
            "Age of messages, 50 and 99 of 100",
            "From a message's timestamp to the consumer that fetches it, or to its delivery.",
            [
                Query(quantile(0.5, "penstock_message_age_seconds", "at"), "p50 {{at}}"),
                Query(quantile(0.99, "penstock_message_age_seconds", "at"), "p99 {{at}}"),
            ],
            unit="s",
        ),
        Panel(
            "Bytes in and out",
            "Record batches from producers, to consumers and to followers.",
            [
                Query(rate("penstock_bytes_in_total"), "in"),
                Query(rate("penstock_bytes_out_total"), "out"),
                Query(rate("penstock_bytes_replicated_total"), "to followers"),
            ],
            unit="Bps",
        ),
        Panel(
            "Requests",
            "By API.",
            [Query(f"topk(10, {rate('penstock_requests_total', 'api')})", "{{api}}")],
            unit="reqps",
        ),
        Panel(
            "Produce, 50 and 99 of 100",
            "Time from a whole request to its reply, the disk included.",
            [
                Query(quantile(0.5, "penstock_request_seconds", labels='{api="Produce"}'), "p50"),
                Query(quantile(0.99, "penstock_request_seconds", labels='{api="Produce"}'), "p99"),
            ],
            unit="s",
        ),
        Panel(
            "Sync of the disk, 99 of 100",
            "What a group commit waits for the disk, by node.",
            [Query(quantile(0.99, "penstock_sync_seconds", "instance"), "{{instance}}")],
            unit="s",
        ),
        Panel(
            "Lag of the event loop, 99 of 100",
            "How late a node's timers are: everything it does is late by as much.",
            [Query(quantile(0.99, "penstock_loop_lag_seconds", "instance"), "{{instance}}")],
            unit="s",
        ),
        Panel(
            "Errors",
            "Each internal error is a bug; peer errors are clients that broke the protocol.",
            [
                Query(rate("penstock_internal_errors_total"), "internal"),
                Query(rate("penstock_peer_errors_total"), "peer"),
                Query(rate("penstock_failed_logins_total"), "failed logins"),
                Query(rate("penstock_connections_refused_total"), "connections refused"),
            ],
            unit="cps",
        ),
        Panel(
            "Refused",
            "Partitions of produce and fetch requests that were answered with an error.",
            [Query(rate("penstock_errors_total", "api, error"), "{{api}} {{error}}")],
            unit="cps",
        ),
        Panel(
            "Put off",
            "Requests and connections that were slowed down, by what they were above.",
            [Query(rate("penstock_throttles_total", "kind"), "{{kind}}")],
            unit="cps",
        ),
        Panel(
            "HTTP requests",
            "By status.",
            [Query(rate("penstock_http_requests_total", "status"), "{{status}}")],
            unit="reqps",
        ),
    ],
)

TOPICS = Dashboard(
    "topics",
    "Penstock / Topics and groups",
    [
        Panel(
            "Records in",
            "Appended by producers, by topic.",
            [Query(rate('penstock_topic_records_in_total{topic=~"$topic"}', "topic"), "{{topic}}")],
            unit="cps",
        ),
        Panel(
            "Records out",
            "Sent to consumers, by topic.",
            [
                Query(
                    rate('penstock_topic_records_out_total{topic=~"$topic"}', "topic"), "{{topic}}"
                )
            ],
            unit="cps",
        ),
        Panel(
            "Bytes in",
            "Appended by producers, by topic.",
            [Query(rate('penstock_topic_bytes_in_total{topic=~"$topic"}', "topic"), "{{topic}}")],
            unit="Bps",
        ),
        Panel(
            "Bytes out",
            "Sent to consumers, by topic.",
            [Query(rate('penstock_topic_bytes_out_total{topic=~"$topic"}', "topic"), "{{topic}}")],
            unit="Bps",
        ),
        Panel(
            "Lag of groups",
            "Records behind, over all partitions.",
            [
                Query(
                    f"sum by (group, topic) (penstock_group_lag{{{GROUPS}}})", "{{group}} {{topic}}"
                )
            ],
        ),
        Panel(
            "Lag of partitions",
            "The 20 partitions that are furthest behind: one that stands alone is stuck or hot.",
            [
                Query(
                    f"topk(20, penstock_group_partition_lag{{{GROUPS}}})",
                    "{{group}} {{topic}}-{{partition}}",
                )
            ],
        ),
        Panel(
            "Lag in time",
            "Age of the oldest record that a group has not read.",
            [
                Query(
                    f"max by (group, topic) (penstock_group_lag_seconds{{{GROUPS}}})",
                    "{{group}} {{topic}}",
                )
            ],
            unit="s",
        ),
        Panel(
            "Trend of lag",
            "Records a second by which groups fall behind (above 0) or catch up (below).",
            [
                Query(
                    f"sum by (group, topic) (penstock_group_lag_trend{{{GROUPS}}})",
                    "{{group}} {{topic}}",
                )
            ],
            unit="cps",
        ),
        Panel(
            "Lag of partitions in time",
            "Age of the first record not read, of the 20 partitions where it is oldest.",
            [
                Query(
                    f"topk(20, penstock_group_partition_lag_seconds{{{GROUPS}}})",
                    "{{group}} {{topic}}-{{partition}}",
                )
            ],
            unit="s",
        ),
        Panel(
            "Skew of partitions",
            "How much more the busiest partition gets than its share: 1 is even.",
            [
                Query(
                    'max by (topic) (penstock_topic_hottest_partition_records{topic=~"$topic"})'
                    ' / (sum by (topic) (penstock_topic_recent_records{topic=~"$topic"})'
                    ' / sum by (topic) (penstock_topic_partitions_led{topic=~"$topic"}))',
                    "{{topic}}",
                )
            ],
        ),
        Panel(
            "Rebalances",
            "New generations of classic groups, new assignments of consumer groups.",
            [Query(rate("penstock_rebalances_total", "protocol"), "{{protocol}}")],
            unit="cps",
        ),
    ],
    variables=(("topic", "penstock_topic_records_in_total"), ("group", "penstock_group_lag")),
)

QUEUES = Dashboard(
    "queues",
    "Penstock / Queues and dead letters",
    [
        Panel(
            "Depth",
            "Records that are not finished, by queue.",
            [
                Query(
                    f'sum by (group, topic) (penstock_queue_depth{{state="unfinished",{GROUPS}}})',
                    "{{group}} {{topic}}",
                )
            ],
        ),
        Panel(
            "What records wait for",
            "Ready for a consumer, in flight with one, or delayed.",
            [
                Query(
                    f'sum by (state) (penstock_queue_depth{{state!="unfinished",{GROUPS}}})',
                    "{{state}}",
                )
            ],
        ),
        Panel(
            "Oldest record",
            "Age of the oldest record that is not finished, by queue.",
            [
                Query(
                    f"max by (group, topic) (penstock_queue_oldest_seconds{{{GROUPS}}})",
                    "{{group}} {{topic}}",
                )
            ],
            unit="s",
        ),
        Panel(
            "Time to ack, 50 and 99 of 100",
            "From a delivery to its acknowledgement: what handlers take.",
            [
                Query(quantile(0.5, "penstock_ack_seconds"), "p50"),
                Query(quantile(0.99, "penstock_ack_seconds"), "p99"),
            ],
            unit="s",
        ),
        Panel(
            "Age when acknowledged, 50 and 99 of 100",
            "From a message's timestamp to its acknowledgement, waiting and retries included.",
            [
                Query(quantile(0.5, "penstock_acknowledged_age_seconds"), "p50"),
                Query(quantile(0.99, "penstock_acknowledged_age_seconds"), "p99"),
            ],
            unit="s",
        ),
        Panel(
            "What became of records",
            "Delivered, finished, released for another try, or given up.",
            [Query(rate("penstock_queue_records_total", "what"), "{{what}}")],
            unit="cps",
        ),
        Panel(
            "Dead letters",
            "Letters that were neither redriven nor purged.",
            [Query("sum by (topic) (penstock_dead_letters)", "{{topic}}")],
        ),
        Panel(
            "Oldest dead letter",
            "How long it has been waiting for somebody.",
            [Query("max by (topic) (penstock_dead_letters_oldest_seconds)", "{{topic}}")],
            unit="s",
        ),
        Panel(
            "Transactions open",
            "By the node that coordinates them.",
            [Query("penstock_transactions_open", "{{instance}}")],
        ),
        Panel(
            "Producers held up",
            "Partitions whose backlog is at max.backlog.bytes.",
            [Query("penstock_backlogs_full", "{{instance}}")],
        ),
        Panel(
            "Coordinators",
            "Internal partitions that are being loaded: their groups and queues wait.",
            [Query("sum by (kind) (penstock_coordinator_shards_loading)", "{{kind}}")],
        ),
    ],
    variables=(("topic", "penstock_queue_depth"), ("group", "penstock_queue_depth")),
)

CLUSTER = Dashboard(
    "cluster",
    "Penstock / Cluster",
    [
        number(
            "Controllers",
            "Exactly one node is the controller.",
            "sum(penstock_controller)",
            bad_from=2,
        ),
        number(
            "Fenced",
            "Nodes that are not sure of their place and take no writes.",
            "sum(penstock_fenced)",
            bad_from=1,
        ),
        number(
            "Under-replicated",
            "Partitions that lack an in-sync replica.",
            "sum(penstock_partitions_under_replicated)",
            bad_from=1,
        ),
        number(
            "Under min.insync.replicas",
            "Partitions that take no write with acks=all.",
            "sum(penstock_partitions_under_min_isr)",
            bad_from=1,
        ),
        number(
            "Offline",
            "Replicas out of service because of damage or a failed disk.",
            "sum(penstock_partitions_offline)",
            bad_from=1,
        ),
        number(
            "Writes refused",
            "Nodes whose disk is nearly full.",
            "sum(penstock_writes_refused)",
            bad_from=1,
        ),
        Panel(
            "Partitions led",
            "By node; even is good.",
            [Query("penstock_partitions_led", "{{instance}}")],
        ),
        Panel(
            "ISR changes",
            "Replicas that left and joined the in-sync ones.",
            [
                Query(rate("penstock_isr_shrinks_total", "instance"), "shrinks {{instance}}"),
                Query(rate("penstock_isr_expands_total", "instance"), "expands {{instance}}"),
            ],
            unit="cps",
        ),
        Panel(
            "Elections",
            "Leaders elected; unclean ones may have lost records.",
            [Query(rate("penstock_elections_total", "kind"), "{{kind}}")],
            unit="cps",
        ),
        Panel(
            "Disk free",
            "Of the disk that holds the logs.",
            [Query("penstock_disk_free_bytes", "{{instance}}")],
            unit="bytes",
        ),
        Panel(
            "Logs",
            "Bytes in the logs of all partitions.",
            [Query("penstock_log_bytes", "{{instance}}")],
            unit="bytes",
        ),
        Panel(
            "Copied",
            "Bytes copied from leaders, by node.",
            [Query(rate("penstock_replica_bytes_total", "instance"), "{{instance}}")],
            unit="Bps",
        ),
        Panel(
            "Processor",
            "1 is a whole core: a node has one event loop.",
            [Query(rate("penstock_process_cpu_seconds_total", "instance"), "{{instance}}")],
            unit="percentunit",
        ),
        Panel(
            "Memory",
            "Of the process, without the page cache.",
            [Query("penstock_process_resident_bytes", "{{instance}}")],
            unit="bytes",
        ),
        Panel(
            "Fetches from disk",
            "Fetches that had to wait because the page cache did not hold the data.",
            [Query(rate("penstock_cold_reads_total", "instance"), "{{instance}}")],
            unit="cps",
        ),
    ],
)

DASHBOARDS = {one.name: one for one in (OVERVIEW, TOPICS, QUEUES, CLUSTER)}
