"""Route table: one row for each supported Kafka API.

ApiVersions, dispatch, metrics and the reference documentation derive from it. A new API needs a
class in `wire/messages`, a function in its family's file here, one row, and a test.
"""

from collections.abc import Callable
from typing import Any

from penstock.broker.api import api_versions
from penstock.broker.api.admin import cluster, configs, elections, internal_requests, topics
from penstock.broker.api.admin.internal_requests import append_audit, ask_registry
from penstock.broker.api.data import list_offsets, metadata, producers
from penstock.broker.api.data.fetch import fetch
from penstock.broker.api.data.produce import produce
from penstock.broker.api.groups import admin, membership, offsets, transactions
from penstock.broker.api.queues import admin as queue_admin
from penstock.broker.api.queues import share_offsets
from penstock.broker.api.queues.peer_requests import (
    keep_queue_state,
    settle_leases,
    take_from_queues,
    tell_queue,
)
from penstock.broker.api.queues.share_acknowledge import share_acknowledge
from penstock.broker.api.queues.share_fetch import share_fetch
from penstock.broker.api.route_row import Needs, Operation, ReplyOrder, ResourceType, Route
from penstock.broker.api.security import acls, quotas, sasl, users
from penstock.wire.messages import REQUESTS, RESPONSES

TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


def _row(
    key: int,
    handler: Callable[..., Any],
    resource: ResourceType | None,
    operation: Operation | None = None,
    stage: ReplyOrder = ReplyOrder.ORDERED,
    advertised: tuple[int, int] | None = None,
) -> Route:
    request = REQUESTS[key]
    needs = Needs(resource, operation) if resource is not None and operation is not None else None
    return Route(request, RESPONSES[key], request.WIRE.versions, handler, needs, stage, advertised)


ROUTES: tuple[Route, ...] = (
    _row(0, produce, TOPIC, Operation.WRITE, ReplyOrder.PIPELINED, advertised=(0, 13)),
    _row(1, fetch, TOPIC, Operation.READ),
    _row(2, list_offsets.list_offsets, TOPIC, Operation.DESCRIBE),
    _row(3, metadata.metadata, TOPIC, Operation.DESCRIBE),
    _row(8, offsets.offset_commit, GROUP, Operation.READ, ReplyOrder.PIPELINED),
    _row(9, offsets.offset_fetch, GROUP, Operation.DESCRIBE),
    _row(10, membership.find_coordinator, GROUP, Operation.DESCRIBE),
    _row(11, membership.member_request, GROUP, Operation.READ),
    _row(12, membership.heartbeat, GROUP, Operation.READ, ReplyOrder.PIPELINED),
    _row(13, membership.member_request, GROUP, Operation.READ),
    _row(14, membership.member_request, GROUP, Operation.READ),
    _row(15, admin.describe_groups, GROUP, Operation.DESCRIBE),
    _row(16, admin.list_groups, CLUSTER, Operation.DESCRIBE),
    _row(17, sasl.sasl_handshake, None, advertised=(1, 1)),
    _row(18, api_versions.api_versions, None),
    _row(19, topics.create_topics, CLUSTER, Operation.CREATE),
    _row(20, topics.delete_topics, TOPIC, Operation.DELETE),
    _row(21, list_offsets.delete_records, TOPIC, Operation.DELETE),
    _row(22, producers.init_producer_id, CLUSTER, Operation.IDEMPOTENT_WRITE),
    _row(23, list_offsets.offset_for_leader_epoch, TOPIC, Operation.DESCRIBE),
    _row(24, transactions.add_partitions_to_txn, TXN, Operation.WRITE),
    _row(25, transactions.add_offsets_to_txn, TXN, Operation.WRITE),
    _row(26, transactions.end_txn, TXN, Operation.WRITE),
    _row(27, transactions.write_txn_markers, CLUSTER, Operation.CLUSTER_ACTION),
    _row(28, offsets.txn_offset_commit, TXN, Operation.WRITE),
    _row(29, acls.describe_acls, CLUSTER, Operation.DESCRIBE),
    _row(30, acls.create_acls, CLUSTER, Operation.ALTER),
    _row(31, acls.delete_acls, CLUSTER, Operation.ALTER),
    _row(32, configs.describe_configs, TOPIC, Operation.DESCRIBE_CONFIGS),
    _row(33, configs.alter_configs, TOPIC, Operation.ALTER_CONFIGS),
    _row(34, cluster.alter_replica_log_dirs, CLUSTER, Operation.ALTER),
    _row(35, cluster.describe_log_dirs, CLUSTER, Operation.DESCRIBE),
    _row(36, sasl.sasl_authenticate, None),
    _row(37, topics.create_partitions, TOPIC, Operation.ALTER),
    _row(42, admin.delete_groups, GROUP, Operation.DELETE),
    _row(43, elections.elect_leaders, CLUSTER, Operation.ALTER),
    _row(44, configs.incremental_alter_configs, TOPIC, Operation.ALTER_CONFIGS),
    _row(45, elections.alter_partition_reassignments, CLUSTER, Operation.ALTER),
    _row(46, elections.list_partition_reassignments, CLUSTER, Operation.DESCRIBE),
    _row(47, offsets.offset_delete, GROUP, Operation.DELETE),
    _row(48, quotas.describe_client_quotas, CLUSTER, Operation.DESCRIBE_CONFIGS),
    _row(49, quotas.alter_client_quotas, CLUSTER, Operation.ALTER_CONFIGS),
    _row(50, users.describe_user_scram_credentials, CLUSTER, Operation.DESCRIBE),
    _row(51, users.alter_user_scram_credentials, CLUSTER, Operation.ALTER),
    _row(57, cluster.update_features, CLUSTER, Operation.ALTER),
    _row(60, cluster.describe_cluster, CLUSTER, Operation.DESCRIBE),
    _row(61, producers.describe_producers, TOPIC, Operation.READ),
    _row(64, cluster.unregister_broker, CLUSTER, Operation.ALTER),
    _row(65, transactions.describe_transactions, TXN, Operation.DESCRIBE),
    _row(66, transactions.list_transactions, TXN, Operation.DESCRIBE),
    _row(68, membership.consumer_group_heartbeat, GROUP, Operation.READ, ReplyOrder.PIPELINED),
    _row(69, admin.consumer_group_describe, GROUP, Operation.DESCRIBE),
    _row(74, configs.list_config_resources, CLUSTER, Operation.DESCRIBE_CONFIGS),
    _row(75, metadata.describe_topic_partitions, TOPIC, Operation.DESCRIBE),
    _row(76, admin.share_group_heartbeat, GROUP, Operation.READ, ReplyOrder.PIPELINED),
    _row(77, admin.share_group_describe, GROUP, Operation.DESCRIBE),
    _row(78, share_fetch, GROUP, Operation.READ, ReplyOrder.PARALLEL),
    _row(79, share_acknowledge, GROUP, Operation.READ, ReplyOrder.PARALLEL),
    _row(90, share_offsets.describe_share_group_offsets, GROUP, Operation.DESCRIBE),
    _row(91, share_offsets.alter_share_group_offsets, GROUP, Operation.READ),
    _row(92, share_offsets.delete_share_group_offsets, GROUP, Operation.DELETE),
    _row(30001, keep_queue_state, CLUSTER, Operation.CLUSTER_ACTION, ReplyOrder.PIPELINED),
    _row(30002, tell_queue, CLUSTER, Operation.CLUSTER_ACTION),
    _row(30003, take_from_queues, CLUSTER, Operation.CLUSTER_ACTION),
    _row(30004, settle_leases, CLUSTER, Operation.CLUSTER_ACTION, ReplyOrder.PARALLEL),
    _row(30005, queue_admin.inspect_queues, GROUP, Operation.DESCRIBE),
    _row(30006, queue_admin.change_queues, GROUP, Operation.READ),
    _row(30007, queue_admin.list_positions, CLUSTER, Operation.DESCRIBE),
    _row(30010, ask_registry, CLUSTER, Operation.CLUSTER_ACTION, ReplyOrder.PARALLEL),
    _row(30030, internal_requests.describe_keys, CLUSTER, Operation.DESCRIBE),
    _row(30031, internal_requests.rotate_keys, CLUSTER, Operation.ALTER),
    _row(30032, append_audit, CLUSTER, Operation.CLUSTER_ACTION, ReplyOrder.PARALLEL),
    _row(30040, users.create_access_key, CLUSTER, Operation.ALTER),
    _row(30041, users.describe_access_keys, CLUSTER, Operation.DESCRIBE),
    _row(30042, users.delete_access_key, CLUSTER, Operation.ALTER),
)
