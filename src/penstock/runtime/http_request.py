"""Blocking HTTP request, for small clients of Penstock's own HTTP endpoints.

Responses are bounded, redirects are not followed, and only http and https are supported. Error
statuses are returned like any other; an OSError means that the server could not be reached.
"""

import urllib.error
import urllib.request
from collections.abc import Mapping

ANSWER_BYTES_MAX = 16 << 20


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def ask_web(
    method: str, url: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
) -> tuple[int, bytes]:
    """Sends one request; returns status and body."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"invalid URL {url}: it must begin with http:// or https://")
    request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return answer.status, _read(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _read(error)


def _read(answer: object) -> bytes:
    data: bytes = answer.read(ANSWER_BYTES_MAX + 1)  # type: ignore[attr-defined]
    if len(data) > ANSWER_BYTES_MAX:
        raise OSError(f"the response is larger than {ANSWER_BYTES_MAX} bytes")
    return data
