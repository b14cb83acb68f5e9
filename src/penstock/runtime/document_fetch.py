"""Fetch of a small document from a URL or a file, without redirects.

Blocks: call it through Workers. Only https, loopback and files are allowed, because the documents
hold keys that decide about authentication.
"""

import urllib.parse
import urllib.request

from penstock.base.errors import ErrorCode, Refused

TIMEOUT_SECONDS = 10.0
DOCUMENT_BYTES_MAX = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: their target is not the configured server."""

    def redirect_request(self, *unused: object) -> None:
        return None


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
