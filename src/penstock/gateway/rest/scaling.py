"""How many consumers a group should have, in the form that KEDA's metrics-api scaler reads."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.client.admin.scaling import ScalingTarget
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.request_io import integer, json_answer, optional_integer, principal_of
from penstock.gateway.rest.endpoint import Parameter, RestEndpoint

TARGET_SECONDS = 60
REPLICAS_MAX = 1_000


class ScalingAnswer(Struct):
    """`desired_replicas` is the number to scale to; the rest is what it is from."""

    group: str
    kind: str
    desired_replicas: int
    current_replicas: int
    reason: str
    lag: int
    largest_partition_lag: int
    partitions: int
    read_per_second: float | None
    """None until the group has been asked about twice."""
    written_per_second: float | None
    replica_per_second: float | None


async def show_scaling(gateway: Gateway, request: Request) -> Response:
    group = request.path_params["group"]
    rate = optional_integer(request, "rate", 1, 1_000_000_000)
    wish = ScalingTarget(
        target_s=integer(request, "target_delay", TARGET_SECONDS, 1, 86_400),
        low=integer(request, "min", 0, 0, REPLICAS_MAX),
        high=integer(request, "max", REPLICAS_MAX, 1, REPLICAS_MAX),
        rate=rate,
    )
    found = await gateway.scaling.one(principal_of(request), group, wish)
    now, scaling = found.now, found.scaling
    return json_answer(
        ScalingAnswer(
            group,
            found.kind,
            scaling.desired,
            found.members,
            scaling.reason,
            now.lag,
            now.largest_lag,
            now.partitions,
            scaling.read_per_s,
            scaling.written_per_s,
            scaling.member_per_s,
        )
    )


ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/groups/{group}/scaling",
        "how many consumers a group or queue should have, for autoscalers",
        show_scaling,
        parameters=(
            Parameter("target_delay", "seconds that a record may wait", "integer", TARGET_SECONDS),
            Parameter("min", "no fewer than these", "integer", 0),
            Parameter("max", "no more than these", "integer", REPLICAS_MAX),
            Parameter("rate", "records that one consumer reads a second, if known", "integer"),
        ),
        answer=ScalingAnswer,
        refusals=(403, 404, 422, 503),
    ),
)
