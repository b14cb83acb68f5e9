"""Row of the console's route table: method, path, summary and handler."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.console.console import Console


@dataclass(frozen=True, slots=True)
class ConsoleRow:
    method: str
    path: str
    """Below `/console/api`."""
    summary: str
    answer: Callable[[Console, Request], Awaitable[Response]]
