"""DescribeConfigs (api 32), versions 1-4; AlterConfigs (33), 0-2;
IncrementalAlterConfigs (44), 0-1; ListConfigResources (74), 0-1.

Resources are topics, brokers (by id, or "" for the cluster's defaults) and groups. Loggers and
client metrics are not supported. DescribeConfigs returns the source of each value and, on request,
its synonyms (v1), types and documentation (v3); sensitive values are never returned. AlterConfigs
replaces all values of a resource; IncrementalAlterConfigs sets, deletes, appends and subtracts. A
change applies at once on the node that answers, and on others when their watch reports it.
ListConfigResources v0 supports client metrics only.

Permissions for configs that name a dead-letter topic. The broker writes dead-lettered messages
with the key and value of the rejected record. So a caller that sets the topic needs permission to
write to it, and to create it if it does not exist: otherwise rejecting a record would bypass both
permissions. Internal topics are not allowed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import Steps
from penstock.broker.api.call import Call
from penstock.broker.api.context import AdminContext, ApiFamily
from penstock.broker.api.large_replies import in_steps
from penstock.broker.api.response_rows import (
    CLUSTER_NAME,
    ROWS_MAX,
    duplicates,
    may,
    may_cluster,
    settled,
)
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.config_changes import (
    Alteration,
    ConfigEdit,
    Op,
    altering,
    replacing,
    with_key,
)
from penstock.cluster.configs.config_types import UpdateMode
from penstock.cluster.configs.effective_configs import (
    TABLES,
    Config,
    Described,
    Scope,
    describe_group,
    describe_topic,
)
from penstock.cluster.metadata import topics
from penstock.cluster.metadata.image import INTERNAL_TOPICS
from penstock.coordinator.queues.policy import DEAD_LETTER_CONFIGS
from penstock.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

NOTHING: Mapping[str, str] = {}


def check_dead_letter_topics(
    ctx: ApiFamily,
    call: Call,
    wanted: Mapping[str, str | None],
    present: Mapping[str, str] = NOTHING,
) -> None:
    """Raises Refused for configs that name a dead-letter topic the caller may not write to."""
    for config in DEAD_LETTER_CONFIGS:
        name = wanted.get(config)
        if not name or name == present.get(config):
            continue
        if name in INTERNAL_TOPICS:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"{config}: only the broker may write to {name}"
            )
        try:
            topics.check_name(name)
        except Refused as refused:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{config}: {refused.message}") from refused
        is_allowed = may(ctx, call, Operation.WRITE, name)
        if is_allowed and name not in ctx.image.topics:
            is_allowed = may_cluster(ctx, call, Operation.CREATE) or may(
                ctx, call, Operation.CREATE, name
            )
        if not is_allowed:
            raise Refused(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"{config}: {call.principal} lacks permission to write to {name} or to create it",
            )


TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32
SCOPES = {TOPIC: Scope.TOPIC, BROKER: Scope.BROKER, GROUP: Scope.GROUP}
APPLY_WAIT_MS = 10_000

ResourceKey = tuple[int, str]
"""Resource type and name."""

_RIGHTS = {
    TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    BROKER: (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def _check_resource(ctx: AdminContext, call: Call, key: ResourceKey, operation: Operation) -> None:
    """Raises Refused unless the type is supported and the caller has permission."""
    kind, name = key
    if kind not in _RIGHTS:
        raise Refused(ErrorCode.INVALID_REQUEST, _unexpected(kind))
    resource, code = _RIGHTS[kind]
    if not ctx.authorize(call, operation, resource, CLUSTER_NAME if kind == BROKER else name):
        raise Refused(code)
    if kind == TOPIC:
        topics.check_name(name)
        if name not in ctx.image.topics:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
    elif kind == BROKER:
        _node_id(ctx, name)
    elif not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty.")


def _unexpected(kind: int) -> str:
    if kind == BROKER_LOGGER:
        return "Log levels cannot be changed through this API."
    if kind == CLIENT_METRICS:
        return "Client metrics are not collected here."
    return f"Unexpected resource type {kind}."


def _node_id(ctx: AdminContext, name: str) -> int | None:
    """Returns the broker that a resource names; None for the cluster's defaults."""
    if not name:
        return None
    if not (name.isascii() and name.isdecimal() and len(name) < 10):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name[:249]}"
        )
    if int(name) != ctx.node_id:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {ctx.node_id} or empty string, but received {name}",
        )
    return int(name)


# -- DescribeConfigs --------------------------------------------------------------------------


def describe_configs(
    ctx: AdminContext, call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    return in_steps(ctx, call, _describe_all(ctx, call, request))


def _describe_all(
    ctx: AdminContext, call: Call, request: DescribeConfigsRequest
) -> Steps[DescribeConfigsResponse]:
    results = []
    resources = {(row.resource_type, row.resource_name): row for row in request.resources}
    for number, (key, resource) in enumerate(resources.items()):
        result = DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=key[0],
            resource_name=key[1],
            configs=(),
        )
        results.append(result)
        yield
        try:
            if number >= ROWS_MAX:
                raise Refused(
                    ErrorCode.POLICY_VIOLATION,
                    f"Too many resources: send at most {ROWS_MAX} per request.",
                )
            _check_resource(ctx, call, key, Operation.DESCRIBE_CONFIGS)
            result.configs = yield from _described(ctx, request, resource)
        except Refused as refused:
            result.error_code = refused.code
            result.error_message = refused.message
    return DescribeConfigsResponse(results=results)


def _described(
    ctx: AdminContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> Steps[list[DescribeConfigsResourceResult]]:
    # A null list and an empty list both mean all configs.
    wanted = set(resource.configuration_keys or ())
    rows = []
    for config in TABLES[SCOPES[resource.resource_type]].values():
        if config.name in wanted if wanted else not config.is_internal:
            described = _describe(ctx, resource, config)
            if described is not None:
                rows.append(_row(request, described))
            yield
    return rows


def _describe(
    ctx: AdminContext, resource: DescribeConfigsResource, config: Config
) -> Described | None:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        topic = ctx.image.topics.get(name)
        if topic is None:
            return None  # Deleted meanwhile.
        return describe_topic(config.name, topic.configs, ctx.configs)
    if resource.resource_type == GROUP:
        overrides: Mapping[str, str] = ctx.image.group_configs.get(name, {})
        return describe_group(config.name, overrides, ctx.configs)
    if name:
        return ctx.configs.describe(config)
    # The cluster as a resource has only configs set for the whole cluster.
    set_here = tuple(
        row
        for row in ctx.configs.sources(config.name)
        if row.source is row.source.DYNAMIC_DEFAULT_BROKER_CONFIG
    )
    return Described(config, set_here[0].text, set_here[0].source, set_here) if set_here else None


def _row(request: DescribeConfigsRequest, described: Described) -> DescribeConfigsResourceResult:
    config = described.config
    hidden = config.is_sensitive
    synonyms = described.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=config.name,
        value=None if hidden else described.text,
        read_only=config.mode is UpdateMode.READ_ONLY,
        config_source=described.source,
        is_sensitive=hidden,
        synonyms=[
            DescribeConfigsSynonym(
                name=row.name, value=None if hidden else row.text, source=row.source
            )
            for row in synonyms
        ],
        config_type=config.type,
        documentation=config.description if request.include_documentation else None,
    )


# -- AlterConfigs and IncrementalAlterConfigs -------------------------------------------------


async def alter_configs(
    ctx: AdminContext, call: Call, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    def edit_of(rows: Sequence[tuple[str, str | None]]) -> Callable[[Scope], ConfigEdit]:
        def edit(scope: Scope) -> ConfigEdit:
            if duplicates(name for name, _ in rows):
                raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            return replacing(scope, dict(rows))

        return edit

    edits = [
        ((row.resource_type, row.resource_name), edit_of(values), dict(values))
        for row in request.resources
        for values in [[(config.name, config.value) for config in row.configs]]
    ]
    answers = await _alter_all(ctx, call, edits, request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for (kind, name), (code, message) in answers.items()
        ]
    )


async def incremental_alter_configs(
    ctx: AdminContext, call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    def edit_of(rows: Sequence[tuple[str, int, str | None]]) -> Callable[[Scope], ConfigEdit]:
        return lambda scope: altering(
            scope, [Alteration(name, _operation(code), value) for name, code, value in rows]
        )

    edits = [
        (
            (resource.resource_type, resource.resource_name),
            edit_of([(row.name, row.config_operation, row.value) for row in resource.configs]),
            {row.name: row.value for row in resource.configs},
        )
        for resource in request.resources
    ]
    answers = await _alter_all(ctx, call, edits, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for (kind, name), (code, message) in answers.items()
        ]
    )


def _operation(code: int) -> Op:
    try:
        return Op(code)
    except ValueError:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unknown config operation {code}: must be 0 (set) to 3 (subtract).",
        ) from None


async def _alter_all(
    ctx: AdminContext,
    call: Call,
    edits: Sequence[tuple[ResourceKey, Callable[[Scope], ConfigEdit], Mapping[str, str | None]]],
    validate_only: bool,
) -> dict[ResourceKey, tuple[ErrorCode, str | None]]:
    answers: dict[ResourceKey, tuple[ErrorCode, str | None]] = {}
    twice = duplicates(key for key, _, _ in edits)
    revision = 0
    for number, (key, edit_for, wanted) in enumerate(edits):
        try:
            if key in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            if number >= ROWS_MAX:
                raise Refused(
                    ErrorCode.POLICY_VIOLATION,
                    f"Too many resources: send at most {ROWS_MAX} per request.",
                )
            if key == (TOPIC, ""):
                raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            _check_resource(ctx, call, key, Operation.ALTER_CONFIGS)
            check_dead_letter_topics(ctx, call, wanted, _present(ctx, key))
            edit = with_key(edit_for(SCOPES[key[0]]), ctx.configs)
            revision = max(revision, await _alter(ctx, key, edit, validate_only))
            answers[key] = ErrorCode.NONE, None
        except Refused as refused:
            answers[key] = refused.code, refused.message
    if revision and not validate_only:
        await settled(ctx, revision, APPLY_WAIT_MS)
    return answers


def _present(ctx: AdminContext, key: ResourceKey) -> Mapping[str, str]:
    """Returns the current configs of a topic or group."""
    kind, name = key
    if kind == TOPIC:
        return ctx.image.topics[name].configs
    return ctx.image.group_configs.get(name, {}) if kind == GROUP else {}


async def _alter(ctx: AdminContext, key: ResourceKey, edit: ConfigEdit, validate_only: bool) -> int:
    kind, name = key
    if kind == TOPIC:
        return await config_changes.alter_topic(ctx.store, name, edit, validate_only=validate_only)
    if kind == BROKER:
        node_id = _node_id(ctx, name)
        return await config_changes.alter_broker(
            ctx.store, node_id, edit, validate_only=validate_only
        )
    return await config_changes.alter_group(
        ctx.store, name, edit, ctx.configs, validate_only=validate_only
    )


# -- ListConfigResources ----------------------------------------------------------------------


def list_config_resources(
    ctx: AdminContext, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Awaitable[ListConfigResourcesResponse]:
    known: tuple[int, ...] = (CLIENT_METRICS,)
    if call.version >= 1:
        known = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
    code = ErrorCode.NONE
    if not ctx.authorize(call, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif any(kind not in known for kind in request.resource_types):
        code = ErrorCode.UNSUPPORTED_VERSION
    if code is not ErrorCode.NONE:
        return ListConfigResourcesResponse(error_code=code, config_resources=())
    image = ctx.image
    names: dict[int, Sequence[str]] = {
        TOPIC: list(image.topics),
        BROKER: [str(node_id) for node_id in image.brokers],
        BROKER_LOGGER: [str(node_id) for node_id in image.brokers],
        GROUP: list(image.group_configs),
    }
    kinds = dict.fromkeys(request.resource_types or known)
    return in_steps(ctx, call, _resources({kind: names.get(kind, ()) for kind in kinds}))


def _resources(names: Mapping[int, Sequence[str]]) -> Steps[ListConfigResourcesResponse]:
    rows = []
    for kind, named in names.items():
        for name in named:
            rows.append(ConfigResource(resource_name=name, resource_type=kind))
            yield
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=rows)
