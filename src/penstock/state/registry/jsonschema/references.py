"""Resolution of `$ref`: within the document, to an `$id` in it, or to a referenced schema.

Nothing is fetched from the network: a schema must declare the schemas it needs as references.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from penstock.state.registry.errors import invalid
from penstock.state.registry.limits import check_depth


@dataclass(slots=True, eq=False)
class Document:
    """A schema text with its named subschemas."""

    name: str
    root: Any
    named: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Subschemas by the full address of their `$id`, `id` or `$anchor`, each with its base URI."""


def join_address(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        raise invalid(f"invalid address: {reference[:200]}") from None


def index_document(name: str, root: Any) -> Document:
    document = Document(name, root)
    base = _identity(root) or name
    document.named[base] = root, base
    for place, around in _places(root, base, 0):
        for address in _addresses(place, around):
            document.named.setdefault(address, (place, address.partition("#")[0]))
    return document


def _places(value: Any, base: str, depth: int) -> Iterator[tuple[dict[str, Any], str]]:
    """All objects in a document, each with the base URI around it."""
    check_depth(depth // 2)
    if isinstance(value, dict):
        yield value, base
        own = _identity(value)
        inner = join_address(base, own) if own is not None and not own.startswith("#") else base
        for key, one in value.items():
            if key not in ("enum", "const", "default", "examples"):
                yield from _places(one, inner, depth + 1)
    elif isinstance(value, list):
        for one in value:
            yield from _places(one, base, depth + 1)


def _identity(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return None
    own = schema.get("$id", schema.get("id"))
    return own if isinstance(own, str) else None


def _addresses(schema: dict[str, Any], base: str) -> Iterator[str]:
    own = _identity(schema)
    if own is not None:
        base = join_address(base, own)
        yield base.removesuffix("#")
    anchor = schema.get("$anchor")
    if isinstance(anchor, str):
        yield f"{base}#{anchor}"


class Library:
    """Documents that one schema may refer to, itself first."""

    def __init__(self, root: Any, references: dict[str, Any]) -> None:
        self.main = index_document("", root)
        self._others = {name: index_document(name, text) for name, text in references.items()}

    def find(self, reference: str, base: str, document: Document) -> tuple[Any, str, Document]:
        """Resolves a `$ref`: the schema, its inner base URI, and its document."""
        address = (
            join_address(base, reference) if not reference.startswith("#") else base + reference
        )
        whole, fragment = urldefrag(address)
        if address in document.named:
            return *document.named[address], document
        found = self._document(whole, reference, document)
        if found is None:
            raise invalid(
                f'"$ref": "{reference[:200]}" is not found: declare other schemas as references'
            )
        place, inner, there = found
        if not fragment:
            return place, inner, there
        if fragment.startswith("/"):
            return _pointed(place, fragment, reference), inner, there
        if address in there.named:
            return *there.named[address], there
        raise invalid(f'"$ref": "{reference[:200]}" is not found')

    def _document(
        self, whole: str, reference: str, document: Document
    ) -> tuple[Any, str, Document] | None:
        if whole in document.named:
            return *document.named[whole], document
        plain = urldefrag(reference)[0]
        for name in (plain, whole, whole.rpartition("/")[2]):
            if name and name in self._others:
                there = self._others[name]
                return there.root, _identity(there.root) or name, there
        for there in (self.main, *self._others.values()):
            if whole in there.named:
                return *there.named[whole], there
        return None


def _pointed(place: Any, pointer: str, reference: str) -> Any:
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            raise invalid(f'"$ref": "{reference[:200]}" is not found')
    return place
