"""Blocking HTTP request, for small clients of Penstock's own HTTP endpoints.

Responses are bounded, redirects are not followed, and only http and https are supported. Error
statuses are returned like any other; an OSError means that the server could not be reached.

Fetch of a small document from a URL or a file, without redirects. Blocks: call it through
Workers. Only https, loopback and files are allowed, because the documents hold keys that decide
about authentication.
"""

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping

from penstock.base.errors import ErrorCode, Refused

TIMEOUT_SECONDS = 10.0
DOCUMENT_BYTES_MAX = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_readable(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if parts.scheme == "http":
        return host in LOOPBACK and parts.username is None
    return parts.scheme == "https" or (parts.scheme == "file" and not parts.netloc)


def read_document(url: str) -> bytes:
    """Reads the document. Raises OSError, or Refused for a URL that is not allowed."""
    if not is_readable(url):
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"{url} is not allowed: use an https:// or file:/// URL"
        )
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=TIMEOUT_SECONDS) as reply:
        document: bytes = reply.read(DOCUMENT_BYTES_MAX + 1)
    if len(document) > DOCUMENT_BYTES_MAX:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{url} is larger than {DOCUMENT_BYTES_MAX} bytes")
    return document


ANSWER_BYTES_MAX = 16 << 20


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: their target is not the configured server."""

    def redirect_request(self, *unused: object) -> None:
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
