"""ApiVersions (api 18), versions 0-4.

Clients first request the supported APIs and versions. The request needs no authentication, and
the reply always has the old response header. An unsupported version is answered in version 0 with
UNSUPPORTED_VERSION and the table, so that the client can choose again. v3 flexible, finalized
features; v4 allows features that start at version 0.
"""

import re
from functools import cache

from penstock.base.errors import ErrorCode
from penstock.broker.api.call import Call
from penstock.broker.api.context import ApiFamily
from penstock.wire.messages import OWN_KEYS
from penstock.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API_VERSIONS_KEY = 18
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3
LEVEL_ZERO_SINCE = 4

FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""Feature levels of this broker: consumer groups (KIP-848), share groups (KIP-932), transactions
v2 (KIP-890)."""
FEATURES_EPOCH = 1
"""Constant, since the software version determines the features."""


def api_versions(ctx: ApiFamily, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_SINCE and not (
        SOFTWARE.fullmatch(request.client_software_name)
        and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return _table(ErrorCode.NONE, call.version)


def unsupported() -> ApiVersionsResponse:
    return _table(ErrorCode.UNSUPPORTED_VERSION, 0)


@cache
def _table(code: ErrorCode, version: int) -> ApiVersionsResponse:
    # Imported here, since the table has a row with this function.
    from penstock.broker.api.routes import ROUTES

    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=route.key, min_version=low, max_version=high)
            for route in ROUTES
            if route.key < OWN_KEYS
            for low, high in [route.advertised or route.versions]
        ],
        supported_features=[
            SupportedFeatureKey(
                name=name,
                # Clients up to v3 cannot read a feature that starts at level 0.
                min_version=0 if version >= LEVEL_ZERO_SINCE else 1,
                max_version=level,
            )
            for name, level in FEATURES.items()
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )
