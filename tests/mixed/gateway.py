"""HTTP at the nodes of a cluster, asked again while a node is away."""

import json
import time
import urllib.error
import urllib.request
from typing import Any, Final

PATIENCE_S: Final = 90.0
PAUSE_S: Final = 0.1
AGAIN: Final = frozenset({404, 408, 409, 429, 500, 503, 504})
"""Statuses that pass: of nodes that start, of leaders that move."""


class Failed(Exception):
    """A request whose result is not known, or that was refused; `status` is 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def ask(address: str, method: str, path: str, body: object = None) -> Any:
    """One request. Raises Failed."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(address + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise Failed(f"{method} {path}: {error.code} {error.read()!r}", error.code) from None
    except OSError as error:
        raise Failed(f"{method} {path}: {error}") from None
    return json.loads(text) if text else None


def ask_patiently(address: str, method: str, path: str, body: object = None) -> Any:
    """The same, again while the cluster is busy with itself. For what may be done twice."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask(address, method, path, body)
        except Failed as failed:
            if failed.status and failed.status not in AGAIN:
                raise
            if time.monotonic() > deadline:
                raise TimeoutError(f"{address}: {failed}") from failed
            time.sleep(PAUSE_S)
