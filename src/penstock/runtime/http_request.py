"""One HTTP request, waited for: what small clients of our own doors need, and no more.

Answers are bounded, redirects are not followed, and only http and https are spoken. Whatever the
server says is an answer, errors too; an OSError is a server that could not be asked.
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
    """Status and body."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"no address that can be asked: {url}")
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
        raise OSError("the answer is too large")
    return data
