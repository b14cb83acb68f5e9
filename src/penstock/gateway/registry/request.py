"""One request to the registry: the parts of its path, its query and its body.

A subject may have any character in it, a slash too, written as `%2F`: so the path is taken apart
before it is decoded. `/contexts/{context}` in front of a path says in which context it is asked.
"""

from dataclasses import dataclass
from urllib.parse import unquote

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.state.registry.requests import LIMIT_MAX
from penstock.state.registry.subject_names import (
    DEFAULT_CONTEXT,
    EVERY_CONTEXT,
    join_subject,
    read_context,
    read_version,
    subject_in,
)

BAD_REQUEST = 400
UNSUPPORTED = 415
NUMBER_CHARS_MAX = 10
BODY_TYPES = ("application/json", "application/octet-stream", "")
VENDOR = "application/vnd.schemaregistry"


@dataclass(frozen=True, slots=True)
class RegistryRequest:
    """What a request says."""

    path: dict[str, str]
    query: QueryParams
    body: bytes
    context: str | None = None
    """Of the path; None: it says none."""

    @property
    def subject(self) -> str:
        return self._here(self.path["subject"])

    @property
    def scope(self) -> str | None:
        """Scope of settings: a subject, or the context; None: the default one."""
        return self._here(self.path.get("subject", "")) or None

    @property
    def found_by(self) -> str | None:
        """The subject, or the context alone, that says where an id is looked for."""
        return self._here(self.text("subject")) or None

    @property
    def deleted_context(self) -> str:
        """As the prefix of its subjects."""
        return join_subject(read_context(self.path["context"]), "") or f":{DEFAULT_CONTEXT}:"

    @property
    def is_qualified(self) -> bool:
        """True if references are shown with their contexts."""
        return self.text("referenceFormat") == "qualified"

    def prefix(self, otherwise: str) -> tuple[str, bool]:
        """Of the subjects that are asked for, and whether it is meant in every context."""
        written = self.query.get("subjectPrefix", otherwise if self.context is None else "")
        subject = self._here(written)
        return subject.removeprefix(EVERY_CONTEXT), subject.startswith(EVERY_CONTEXT)

    def _here(self, written: str) -> str:
        return subject_in(self.context or DEFAULT_CONTEXT, written)

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


def context_part(parts: list[str]) -> tuple[str | None, list[str]]:
    """The context that a path begins with, and what is asked there."""
    if parts[0] != "contexts" or len(parts) < 3:
        return None, parts
    context, rest = read_context(parts[1]), parts[2:]
    return context, rest


def check_media_type(request: Request) -> None:
    """Refuses what a browser sends for a page without asking first."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in BODY_TYPES and not kind.startswith(VENDOR):
        raise HTTPException(UNSUPPORTED, "HTTP 415 Unsupported Media Type")
