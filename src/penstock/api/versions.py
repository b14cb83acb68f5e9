"""ApiVersions (api 18), versions 0-4.

The first thing a client asks: which APIs, in which versions. Answered before authentication, in
the old response header always; a version we do not know is answered in version 0 with
UNSUPPORTED_VERSION and the table, so that the client can ask again. v3 flexible, finalized
features; v4 allows features that start at version 0.
"""

import re
from functools import cache

from penstock.api.context import Call, Context
from penstock.base.errors import ErrorCode
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

API_VERSIONS_KEY = 18
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3


def api_versions(ctx: Context, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_SINCE and not (
        SOFTWARE.fullmatch(request.client_software_name)
        and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return _table(ErrorCode.NONE)


def unsupported() -> ApiVersionsResponse:
    return _table(ErrorCode.UNSUPPORTED_VERSION)


@cache
def _table(code: ErrorCode) -> ApiVersionsResponse:
    # Imported here because this answer is about the table that this function is a row of.
    from penstock.api.routes import ROUTES

    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=route.key, min_version=low, max_version=high)
            for route in ROUTES
            for low, high in [route.advertised or route.versions]
        ],
    )
