"""ApiVersions (api 18), versions 0-4: the API versions and features of a broker.

v3 is flexible and names the client's software; features are tagged fields of the response,
whose header stays v0 in every version. v4 allows a feature to start at level 0 (KAFKA-17011).
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int16, int32, int64, message, string, struct


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    """Requests the API versions of the broker, as the first request of a connection."""

    client_software_name: str = string(since=3, default="")
    client_software_version: str = string(since=3, default="")


@struct()
class ApiVersion:
    """Supported versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct()
class SupportedFeatureKey:
    """Levels of a feature that this broker supports."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct()
class FinalizedFeatureKey:
    """Level of a feature that the cluster has finalized."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """Supported API versions and features of the broker."""

    error_code: int = int16()
    api_keys: Sequence[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, default=0)
    supported_features: Sequence[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, default=(), tag=0
    )
    finalized_features_epoch: int = int64(since=3, default=-1, tag=1)
    finalized_features: Sequence[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, default=(), tag=2
    )
    zk_migration_ready: bool = boolean(since=3, default=False, tag=3)
