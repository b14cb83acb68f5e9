"""Reads a small document from the web or from a file, as it was named: no redirects, no surprises.

Blocks, so it is for workers. Only https, loopback and files: what is read decides who is believed.
"""

import urllib.parse
import urllib.request

from penstock.base.errors import ErrorCode, Refused

TIMEOUT_SECONDS = 10.0
DOCUMENT_BYTES_MAX = 1 << 20
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Who sends us elsewhere is not who was named."""

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
    """Raises OSError, or Refused for what must not be read."""
    if not is_readable(url):
        raise Refused(ErrorCode.INVALID_CONFIG, f"{url} is neither https:// nor file:///")
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=TIMEOUT_SECONDS) as reply:
        document: bytes = reply.read(DOCUMENT_BYTES_MAX + 1)
    if len(document) > DOCUMENT_BYTES_MAX:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{url} has more than {DOCUMENT_BYTES_MAX} bytes")
    return document
