"""Cluster-wide messages.

DescribeCluster (60), UpdateFeatures (57), UnregisterBroker (64).
DescribeCluster v1 has the type of the endpoint (KIP-919), v2 lists fenced brokers
(KIP-1073).
"""

from collections.abc import Sequence

from penstock.wire.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest:
    """Requests the brokers, without topics."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2, default=False)


@struct()
class DescribeClusterBroker:
    """Broker with its address for this type of endpoint."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)
    is_fenced: bool = boolean(since=2, default=False)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    """Brokers and controller of the cluster."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: Sequence[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)


@struct()
class FeatureUpdateKey:
    """Feature and its new level."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0, default=False)
    upgrade_type: int = int8(since=1, default=1)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest:
    """Upgrades or downgrades the levels of features."""

    timeout_ms: int = int32(default=60000)
    feature_updates: Sequence[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1, default=False)


@struct()
class UpdatableFeatureResult:
    """Result of changing one feature, up to v1."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    """Result of changing the features."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    results: Sequence[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, default=())


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest:
    """Unregisters a broker that will not return."""

    broker_id: int = int32()


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse:
    """Result of unregistering the broker."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
