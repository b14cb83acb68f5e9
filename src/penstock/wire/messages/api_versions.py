"""ApiVersions (api 18), versions 0-4: what a broker speaks.

v3 is flexible and names the client's software; features are tagged fields of the answer, whose
header stays v0 in every version. v4 allows a feature to start at level 0 (KAFKA-17011).

What holds what:

- ApiVersionsResponse > (ApiVersion, SupportedFeatureKey, FinalizedFeatureKey)
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int16, int32, int64, message, string, struct


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    """Asks what the broker speaks, before anything else is said."""

    client_software_name: str = string(since=3, default="")
    client_software_version: str = string(since=3, default="")


@struct()
class ApiVersion:
    """The versions spoken of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct()
class SupportedFeatureKey:
    """The levels of a feature that this broker could run."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct()
class FinalizedFeatureKey:
    """The level of a feature that the cluster runs."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """What the broker speaks."""

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
