"""Configs of topics, brokers and groups.

DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).
Resource types are Kafka's: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
ListConfigResources was ListClientMetricsResources in v0, which only has names.
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int8, int16, int32, message, string, struct


@struct()
class DescribeConfigsResource:
    """Requested resource; null keys means all of its configs."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: Sequence[str] | None = array(string, nullable=True, default=())


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest:
    """Requests configs with the sources of their values."""

    resources: Sequence[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(default=False)
    include_documentation: bool = boolean(since=3, default=False)


@struct()
class DescribeConfigsSynonym:
    """One source of a value, by precedence."""

    name: str = string()
    value: str | None = string(nullable=True)
    source: int = int8()


@struct()
class DescribeConfigsResourceResult:
    """Config with its value and source."""

    name: str = string()
    value: str | None = string(nullable=True)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: Sequence[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3, default=0)
    documentation: str | None = string(since=3, nullable=True, default=None)


@struct()
class DescribeConfigsResult:
    """Configs of one resource, or an error."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()
    configs: Sequence[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    """Configs per resource."""

    throttle_time_ms: int = int32(default=0)
    results: Sequence[DescribeConfigsResult] = array(DescribeConfigsResult)


@struct()
class AlterableConfig:
    """Config and its new value."""

    name: str = string()
    value: str | None = string(nullable=True)


@struct()
class AlterConfigsResource:
    """Resource and all of its configs; those not named return to their defaults."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: Sequence[AlterableConfig] = array(AlterableConfig)


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest:
    """Replaces the configs of resources."""

    resources: Sequence[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct()
class AlterConfigsResourceResponse:
    """Result of changing one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """Results of the changes."""

    throttle_time_ms: int = int32(default=0)
    responses: Sequence[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@struct()
class IncrementalAlterableConfig:
    """Config and operation: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=True)


@struct()
class IncrementalAlterConfigsResource:
    """Resource and the configs to change."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: Sequence[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    """Changes single configs of resources."""

    resources: Sequence[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@struct()
class IncrementalAlterConfigsResourceResponse:
    """Result of changing one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """Results of the changes."""

    throttle_time_ms: int = int32(default=0)
    responses: Sequence[IncrementalAlterConfigsResourceResponse] = array(
        IncrementalAlterConfigsResourceResponse
    )


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    """Requests the resources that have configs of their own."""

    resource_types: Sequence[int] = array(int8, since=1, default=())


@struct()
class ConfigResource:
    """Resource that has configs of its own."""

    resource_name: str = string()
    resource_type: int = int8(since=1, default=16)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """Resources that have configs of their own."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: Sequence[ConfigResource] = array(ConfigResource)
