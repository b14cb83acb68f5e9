"""Configs of topics, brokers and groups.

DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).
Resource types are Kafka's: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
ListConfigResources was ListClientMetricsResources in v0, which can say nothing but names.

What holds what:

- DescribeConfigsRequest > DescribeConfigsResource
- DescribeConfigsResponse > DescribeConfigsResult > DescribeConfigsResourceResult >
  DescribeConfigsSynonym
- AlterConfigsRequest > AlterConfigsResource > AlterableConfig
- AlterConfigsResponse > AlterConfigsResourceResponse
- IncrementalAlterConfigsRequest > IncrementalAlterConfigsResource > IncrementalAlterableConfig
- IncrementalAlterConfigsResponse > IncrementalAlterConfigsResourceResponse
- ListConfigResourcesResponse > ConfigResource
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int8, int16, int32, message, string, struct


@struct()
class DescribeConfigsResource:
    """The resource asked about; null keys means all of its configs."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: Sequence[str] | None = array(string, nullable=True, default=())


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest:
    """Asks for configs and where their values come from."""

    resources: Sequence[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(default=False)
    include_documentation: bool = boolean(since=3, default=False)


@struct()
class DescribeConfigsSynonym:
    """One of the places a value may come from."""

    name: str = string()
    value: str | None = string(nullable=True)
    source: int = int8()


@struct()
class DescribeConfigsResourceResult:
    """A config, its value and its source."""

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
    """One resource's configs, or why they cannot be told."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()
    configs: Sequence[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    """Configs by resource."""

    throttle_time_ms: int = int32(default=0)
    results: Sequence[DescribeConfigsResult] = array(DescribeConfigsResult)


@struct()
class AlterableConfig:
    """A config and its new value."""

    name: str = string()
    value: str | None = string(nullable=True)


@struct()
class AlterConfigsResource:
    """One resource and all of its configs; those not named return to defaults."""

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
    """Whether one resource was changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """Which resources were changed."""

    throttle_time_ms: int = int32(default=0)
    responses: Sequence[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@struct()
class IncrementalAlterableConfig:
    """A config and what to do: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=True)


@struct()
class IncrementalAlterConfigsResource:
    """One resource and the configs to change."""

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
    """Whether one resource was changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """Which resources were changed."""

    throttle_time_ms: int = int32(default=0)
    responses: Sequence[IncrementalAlterConfigsResourceResponse] = array(
        IncrementalAlterConfigsResourceResponse
    )


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    """Asks which resources have configs of their own."""

    resource_types: Sequence[int] = array(int8, since=1, default=())


@struct()
class ConfigResource:
    """A resource that has configs of its own."""

    resource_name: str = string()
    resource_type: int = int8(since=1, default=16)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """The resources that have configs of their own."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: Sequence[ConfigResource] = array(ConfigResource)
