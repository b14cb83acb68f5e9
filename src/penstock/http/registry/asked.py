"""One request to the registry: the parts of its path, its query and its body.

A subject may have any character in it, a slash too, written as `%2F`: so the path is taken apart
before it is decoded.
"""

from dataclasses import dataclass
from urllib.parse import unquote

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.registry.calls import LIMIT_MAX
from penstock.registry.naming import plain_subject, read_version

BAD_REQUEST = 400
UNSUPPORTED = 415
NUMBER_CHARS_MAX = 10
BODY_TYPES = ("application/json", "application/octet-stream", "")
VENDOR = "application/vnd.schemaregistry"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says."""

    path: dict[str, str]
    query: QueryParams
    body: bytes

    @property
    def subject(self) -> str:
        return plain_subject(self.path["subject"])

    @property
    def version(self) -> int:
        return read_version(self.path["version"])

    @property
    def id(self) -> int:
        return self._number(self.path["id"], "id")

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def text(self, name: str) -> str:
        return self.query.get(name, "")

    @property
    def offset(self) -> int:
        return max(0, self._number(self.query.get("offset", "0"), "offset"))

    @property
    def limit(self) -> int:
        limit = self._number(self.query.get("limit", "-1"), "limit")
        return limit if 0 <= limit <= LIMIT_MAX else LIMIT_MAX

    def _number(self, written: str, name: str) -> int:
        digits = written.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_CHARS_MAX):
            raise HTTPException(BAD_REQUEST, f"{name} is a number, not {written[:40]}")
        return int(written)


def path_parts(request: Request) -> list[str]:
    """Each decoded on its own."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    path = raw.partition(b"?")[0].decode("ascii", "replace")
    return [unquote(part, errors="replace") for part in path.strip("/").split("/")]


def check_media_type(request: Request) -> None:
    """Refuses what a browser sends for a page without asking first."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in BODY_TYPES and not kind.startswith(VENDOR):
        raise HTTPException(UNSUPPORTED, "HTTP 415 Unsupported Media Type")
